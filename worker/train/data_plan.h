#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/train/group_sampling.h"
#include "worker/train/packing.h"

namespace dex::train {

// Which packs each update of a job trains on. The only position is the update's number: everything
// else follows from (seed, pass), so a resumed job reads exactly what the undisturbed one would
// have read (jobs.md §7). Holds the packs of one pass at a time; not thread-safe.
class DataPlan {
 public:
  struct Options {
    PackingOptions packing;
    int32_t batch_size = 16;  // packs an update; the last update of a pass may have fewer
    int64_t passes = 1;       // n_epochs
    int64_t max_steps = 0;    // > 0: exactly so many updates, over as many passes as that takes
    uint64_t seed = 0;
    std::optional<GroupSampling> groups = {};  // nothing: each pass reads every example once
  };

  // `lengths`: tokens of each example. Throws std::runtime_error if there is no example.
  DataPlan(std::vector<int32_t> lengths, const Options& options);

  int64_t updates() const { return static_cast<int64_t>(pass_of_.size()); }  // N
  const std::optional<GroupSampling>& groups() const { return options_.groups; }

  // Where update u = 0 … N−1 reads.
  struct Update {
    int64_t pass = 0;
    std::span<const Pack> packs;  // valid until the next call
    bool ends_pass = false;
    double passes_done = 0;  // after this update, fractional: 1.25
  };
  Update update(int64_t u);

 private:
  const std::vector<Pack>& packs_of(int64_t pass);

  std::vector<int32_t> lengths_;
  Options options_;
  std::vector<int32_t> pass_of_;       // of each update
  std::vector<int64_t> first_update_;  // of each pass
  std::vector<int64_t> updates_in_;    // of each pass when run whole
  int64_t loaded_pass_ = -1;
  std::vector<Pack> packs_;
};

}  // namespace dex::train
