#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/train/examples.h"

namespace dex::train {

// Which examples each pass over the data reads when groups of rows (tags, languages) are to have
// given shares of it (finetuning.proto, Hyperparameters.group_by). A pass stays as many tokens as
// the examples are, whatever the weights, so a job costs the same and equal budgets stay equal.
//
// Each group has an endless stream of its own: all its examples in random order, then all of them
// in another order, and so on. Laid end to end by their tokens, pass p gets those examples that
// begin in [p·s, (p+1)·s), s being the group's tokens a pass. So no example comes again before all
// of its group have come, a pass misses a share by less than one example, and nothing is kept: what
// a pass reads is a function of (seed, pass), which a resumed job gives again (jobs.md §7).
class GroupSampling {
 public:
  struct Group {
    std::string name;
    double weight = 1;               // above 0
    std::vector<uint32_t> examples;  // at least one; indices into the data set
    int64_t tokens = 0;              // of its examples
    int64_t pass_tokens = 0;         // that a pass reads of them: its weight's share of all tokens

    // How often a pass reads each example, on average.
    [[nodiscard]] double repeats() const {
      return static_cast<double>(pass_tokens) / static_cast<double>(tokens);
    }
  };

  // `lengths`: tokens of each example, at least 1. Groups by name; `weights` of those that don't
  // weigh 1. Throws std::runtime_error where a weight is not above 0 or sizes differ.
  GroupSampling(std::span<const Example> examples, const std::map<std::string, double>& weights,
                uint64_t seed);

  // The examples of a pass, group by group; one may occur several times. Never empty: at least one
  // group reads all of its tokens or more.
  [[nodiscard]] std::vector<uint32_t> draw(int64_t pass) const;

  // By name. Their order is part of what is drawn.
  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }
  [[nodiscard]] int64_t pass_tokens() const;  // of all groups together

 private:
  void add_drawn(size_t group, int64_t pass, std::vector<uint32_t>& drawn) const;

  std::vector<Group> groups_;
  std::vector<int32_t> lengths_;  // of every example
  uint64_t seed_;
};

// What a pass reads: drawn by group, or every example once where there are no groups.
std::vector<uint32_t> examples_of_pass(const std::optional<GroupSampling>& groups, size_t count,
                                       int64_t pass);

}  // namespace dex::train
