// Where Gloo's header files are missing (CMake says so): a job has one rank.
#include "worker/train/failure.h"
#include "worker/train/process_group.h"

namespace dex::train {

std::unique_ptr<ProcessGroup> join_process_group(const ProcessGroup::Options& options) {
  throw bad_spec("ranks", "must be 1, got " + std::to_string(options.ranks) +
                              ": this dex-trainer was built without Gloo's headers (libgloo-dev)");
}

}  // namespace dex::train
