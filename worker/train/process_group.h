#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>

namespace dex::train {

// The processes ("ranks") that compute one job's updates together. Every rank makes the same calls
// in the same order; each blocks until all have made it. One thread. A rank that is gone is seen at
// once, by its closed connection: the call throws Failure (Exit::kRetryable, kRankLost), and the
// group is of no more use.
class ProcessGroup {
 public:
  struct Options {
    int32_t rank = 0, ranks = 1;
    // A file that all ranks open and that does not exist before the first does (c10d::FileStore).
    std::filesystem::path rendezvous;
  };

  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int32_t rank() const { return options_.rank; }
  [[nodiscard]] int32_t ranks() const { return options_.ranks; }

  // In place, the sum over all ranks: the same bits at each of them, and in each run with as many
  // ranks, since the order of the summands follows from the element's place alone. Contiguous
  // memory of a CPU, fp32 or fp64, not empty.
  virtual void all_reduce(const at::Tensor& tensor) = 0;
  // In place, rank 0's. As above.
  virtual void broadcast(const at::Tensor& tensor) = 0;

 protected:
  explicit ProcessGroup(Options options) : options_(std::move(options)) {}

 private:
  Options options_;
};

// Waits for all ranks, five minutes at most (jobs.md §6). Connections are of the loopback interface
// only: all ranks are on one machine. Throws Failure: bad_spec of `ranks` where this program was
// built without Gloo's headers.
std::unique_ptr<ProcessGroup> join_process_group(const ProcessGroup::Options& options);

}  // namespace dex::train
