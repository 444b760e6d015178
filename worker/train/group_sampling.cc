#include "worker/train/group_sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "worker/train/philox.h"

namespace dex::train {

GroupSampling::GroupSampling(std::span<const Example> examples,
                             const std::map<std::string, double>& weights, uint64_t seed)
    : seed_(seed) {
  std::map<std::string, Group> by_name;
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto length = static_cast<int32_t>(examples[i].ids.size());
    if (length < 1) throw std::runtime_error("[GroupSampling] an example has no token");
    Group& group = by_name[examples[i].group];
    group.examples.push_back(static_cast<uint32_t>(i));
    group.tokens += length;
    lengths_.push_back(length);
  }
  if (by_name.empty()) throw std::runtime_error("[GroupSampling] there is no example");
  double sum = 0;
  int64_t all = 0;
  for (auto& [name, group] : by_name) {
    group.name = name;
    if (const auto found = weights.find(name); found != weights.end()) group.weight = found->second;
    if (!(group.weight > 0) || !std::isfinite(group.weight)) {
      throw std::runtime_error("[GroupSampling] the weight of \"" + name +
                               "\" must be a number above 0, got " + std::to_string(group.weight));
    }
    sum += group.weight;
    all += group.tokens;
  }
  for (auto& [name, group] : by_name) {
    // In whole tokens, so that where a pass begins is exact however many there were; a group is
    // never rounded away.
    const double share = static_cast<double>(all) * group.weight / sum;
    group.pass_tokens = std::max<int64_t>(1, std::llround(share));
    groups_.push_back(std::move(group));
  }
}

void GroupSampling::add_drawn(size_t index, int64_t pass, std::vector<uint32_t>& drawn) const {
  const Group& group = groups_[index];
  const int64_t begin = pass * group.pass_tokens, end = begin + group.pass_tokens;
  // Round r of the stream lies at [r·tokens, (r+1)·tokens), whatever its order.
  for (int64_t round = begin / group.tokens; round * group.tokens < end; ++round) {
    const auto stream = (static_cast<uint64_t>(index) << 40) | static_cast<uint64_t>(round);
    const auto order =
        permutation(static_cast<uint32_t>(group.examples.size()), seed_, Site::kGroups, stream);
    int64_t at = round * group.tokens;
    for (const uint32_t position : order) {
      if (at >= end) break;
      const uint32_t example = group.examples[position];
      if (at >= begin) drawn.push_back(example);
      at += lengths_[example];
    }
  }
}

std::vector<uint32_t> GroupSampling::draw(int64_t pass) const {
  std::vector<uint32_t> drawn;
  for (size_t index = 0; index < groups_.size(); ++index) add_drawn(index, pass, drawn);
  return drawn;
}

int64_t GroupSampling::pass_tokens() const {
  int64_t tokens = 0;
  for (const Group& group : groups_) tokens += group.pass_tokens;
  return tokens;
}

std::vector<uint32_t> examples_of_pass(const std::optional<GroupSampling>& groups, size_t count,
                                       int64_t pass) {
  if (groups) return groups->draw(pass);
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

}  // namespace dex::train
