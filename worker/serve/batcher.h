#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "worker/serve/block_manager.h"

namespace dex::serve {

// What the batcher knows of a request. The engine's Sequence is one.
struct Schedulable {
  std::vector<int32_t> tokens;  // the prompt, then what was generated; the last one has no K, V yet
  int32_t prompt_tokens = 0;
  int32_t computed = 0;      // tokens whose K and V are in the cache
  uint64_t adapter_key = 0;  // what its KV cache is shared by: the adapter at its scale of λ
  uint64_t group = 0;        // rows of one group are best neighbours: they share weights
  // Prompt tokens that may be taken from the cache: those after them are needed (echo), or all are
  // (an adapter's sums).
  int32_t reusable = std::numeric_limits<int32_t>::max();
  BlockManager::Lease lease;
};

// A sequence's share of a step: tokens [first, first + count). The last row's logits give the next
// token when the share reaches the end of `tokens`.
struct Share {
  Schedulable* sequence = nullptr;
  int32_t first = 0;
  int32_t count = 0;

  [[nodiscard]] bool reaches_end() const {
    return first + count == static_cast<int32_t>(sequence->tokens.size());
  }
};

// What one step computes: a token of each sequence that is generating, and up to `chunk_tokens` of
// prompts.
struct Plan {
  std::vector<Share> decode;
  std::vector<Share> prefill;
};

// Continuous batching: decides at every step who takes part. Waiting sequences are admitted in
// order as soon as their blocks are free; prompts are computed in chunks between decode steps, so
// that nobody who is generating waits longer than one chunk. When the pool is full the youngest
// sequence goes back to the front of the queue and is computed again later; nothing fails.
// Bookkeeping only. Not thread-safe; the step loop owns it.
class Batcher {
 public:
  struct Options {
    int32_t max_running = 32;
    int32_t chunk_tokens = 128;  // of all prompts together, a step
  };
  Batcher(const Options& options, BlockManager& blocks);  // blocks outlives this object

  // `sequence` lives until remove(). It must fit: blocks_for(all tokens it may ever have) ≤
  // block_count.
  void add(Schedulable* sequence);
  // Gives its blocks back at once. A sequence that is not here is ignored.
  void remove(Schedulable* sequence);

  // Every share has its blocks. Call computed() for each before the next plan().
  Plan plan();
  // The share's K and V are in the cache; if it reached the end, `tokens` may have grown since.
  void computed(const Share& share);

  [[nodiscard]] size_t running() const { return running_.size(); }
  [[nodiscard]] size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] int64_t preemptions() const { return preemptions_; }

 private:
  void admit();
  void plan_decode(Plan& plan);
  void plan_prefill(Plan& plan);
  void preempt_youngest();

  Options options_;
  BlockManager& blocks_;
  std::deque<Schedulable*> waiting_;
  std::vector<Schedulable*> running_;  // oldest first
  size_t turn_ = 0;                    // whose prompt is served first
  int64_t preemptions_ = 0;
};

}  // namespace dex::serve
