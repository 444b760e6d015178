#include "worker/model/memory_failure.h"
#include "worker/train/job.h"

namespace dex::train {

Ending ending_of(const std::exception& error) {
  Ending ending;
  ending.message = error.what();
  if (const auto* stopped = dynamic_cast<const Stopped*>(&error)) {
    ending.exit = Exit::kStopped;
    ending.stopped = stopped->reason();
  } else if (const auto* failure = dynamic_cast<const Failure*>(&error)) {
    ending.exit = failure->exit();
    ending.code = failure->code();
    ending.param = failure->param();
    if (const auto* memory = dynamic_cast<const OutOfMemoryFailure*>(failure))
      ending.out_of_memory = memory->post_mortem();
  } else if (model::is_out_of_memory(error)) {
    ending.exit = Exit::kOutOfMemory;
    ending.code = "out_of_memory";
  } else {
    ending.exit = Exit::kInternal;
    ending.code = "internal";
  }
  return ending;
}

}  // namespace dex::train
