#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/train/failure.h"

namespace dex::train {

// What a job was doing with memory (events.proto, OutOfMemory.Where).
enum class MemoryPlace {
  kBefore,  // there is nothing to train yet: model and rows are loaded
  kForward,
  kBackward,
  kOptimizer,   // trained weights, gradients and moments: made, updated, saved
  kEvaluation,  // passes that train nothing
};
const char* name(MemoryPlace place);  // "FORWARD"; "UNSPECIFIED" for kBefore

// The post-mortem of an allocation that failed.
struct OutOfMemory {
  MemoryPlace where = MemoryPlace::kBefore;
  int64_t longest_row_tokens = 0;  // in memory; where nothing was computed, of all trained rows
  int64_t peak_memory_bytes = 0;   // of the process until then
  int32_t micro_batch_size = 0, max_seq_length = 0;  // 0: not chosen yet
  int64_t step = 0;                                  // updates done
  std::optional<int32_t> retry_micro_batch_size;     // the next attempt's; nothing: there is none
};

// "out of memory in the backward pass after 3 updates: peak 812 MiB, longest row 512 tokens, …":
// one sentence without its full stop, of what happened and with what setting.
std::string sentence(const OutOfMemory& out);

// Thrown in place of the allocator's own words, which are no user's business.
class OutOfMemoryFailure : public Failure {
 public:
  explicit OutOfMemoryFailure(const OutOfMemory& post_mortem)
      : Failure(Exit::kOutOfMemory, "out_of_memory", sentence(post_mortem)),
        post_mortem_(post_mortem) {}
  const OutOfMemory& post_mortem() const { return post_mortem_; }

 private:
  OutOfMemory post_mortem_;
};

}  // namespace dex::train
