#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace dex::serve {

// Hands out blocks of the KV pool and shares those that hold the same prefix of the same adapter.
// Bookkeeping only: no tensors, no I/O, never blocks. Not thread-safe; the step loop owns it.
class BlockManager {
 public:
  struct Options {
    int32_t block_count = 0;
    int32_t block_tokens = 16;
  };
  // What a sequence holds. Give it back with release().
  struct Lease {
    std::vector<int32_t> blocks;
    int32_t cached_tokens = 0;  // their K and V are there; a multiple of block_tokens
    int32_t published = 0;      // full blocks that publish() has seen
    uint64_t chain = 0;         // hash of the adapter and the published blocks' tokens
  };
  explicit BlockManager(const Options& options);

  // Blocks for all `tokens`, those of a known prefix of at most `reusable` tokens shared. All or
  // nothing: nullopt leaves the pool as it was and means "later". `adapter` starts the hash chain,
  // so two adapters never share a block. The last token never counts as cached: its logits are
  // needed.
  std::optional<Lease> acquire(uint64_t adapter, std::span<const int32_t> tokens,
                               int32_t reusable = std::numeric_limits<int32_t>::max());

  // Room for `tokens` tokens in all. False leaves lease and pool as they were.
  bool extend(Lease& lease, int32_t tokens);

  // The first `computed` of `tokens` have their K and V now: blocks that are full can be shared
  // from here on.
  void publish(Lease& lease, std::span<const int32_t> tokens, int32_t computed);

  // Blocks held by others stay; the rest is reused, oldest first, and can be found until then.
  void release(Lease lease);

  [[nodiscard]] int32_t block_count() const { return static_cast<int32_t>(blocks_.size()); }
  [[nodiscard]] int32_t block_tokens() const { return options_.block_tokens; }
  [[nodiscard]] int32_t free_blocks() const {
    return free_count_;
  }  // those that are only remembered included
  [[nodiscard]] int32_t blocks_for(int32_t tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  [[nodiscard]] double usage_ratio() const;

 private:
  struct Block {
    int32_t holders = 0;
    int32_t previous = -1, next = -1;  // in the list of free blocks
    bool known = false;                // in by_hash_
    uint64_t hash = 0;                 // of the chain up to and including this block
    uint64_t parent = 0;
    std::vector<int32_t> tokens;  // of a known block: a hash alone is no proof
  };

  [[nodiscard]] int32_t find(uint64_t parent,
                             std::span<const int32_t> tokens) const;  // −1: unknown
  int32_t take_oldest();                                              // forgets what it held
  void hold(int32_t index);
  void unlink(int32_t index);
  void append_free(int32_t index);

  Options options_;
  std::vector<Block> blocks_;
  std::unordered_map<uint64_t, int32_t> by_hash_;
  int32_t oldest_ = -1, newest_ = -1;
  int32_t free_count_ = 0;
};

}  // namespace dex::serve
