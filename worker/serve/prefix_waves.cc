#include "worker/serve/prefix_waves.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace dex::serve {
namespace {

// A block of an item together with all before it, as one number (FNV-1a over the ids). Two that
// meet by chance cost a little time, nothing else.
std::vector<uint64_t> chain_of(std::span<const int32_t> tokens, size_t block_tokens) {
  std::vector<uint64_t> out;
  uint64_t hash = 0xCBF29CE484222325;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x100000001B3;
    if ((i + 1) % block_tokens == 0) out.push_back(hash);
  }
  return out;
}

struct Item {
  std::vector<uint64_t> blocks;
  size_t usable = 0;  // of them: those before the first logits that are needed
};

}  // namespace

std::vector<std::vector<size_t>> prefix_waves(std::span<const evaluate::Subject::Scoring> items,
                                              int32_t block_tokens) {
  const auto size = static_cast<size_t>(block_tokens);
  std::vector<Item> chains;
  for (const auto& item : items) {
    chains.push_back({chain_of(item.tokens, size), static_cast<size_t>(item.first - 1) / size});
  }
  std::vector<size_t> left(items.size());
  std::iota(left.begin(), left.end(), size_t{0});
  std::unordered_set<uint64_t> known;
  std::vector<std::vector<size_t>> waves;
  while (!left.empty()) {
    std::vector<size_t> wave, later;
    std::unordered_set<uint64_t> claimed;
    for (const size_t i : left) {
      const Item& item = chains[i];
      size_t next = 0;
      while (next < item.usable && known.contains(item.blocks[next])) ++next;
      if (next < item.usable && claimed.contains(item.blocks[next])) {
        later.push_back(i);
        continue;
      }
      wave.push_back(i);
      claimed.insert(item.blocks.begin(), item.blocks.end());
    }
    known.merge(claimed);
    waves.push_back(std::move(wave));
    left = std::move(later);
  }
  return waves;
}

}  // namespace dex::serve
