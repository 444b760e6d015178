#include "worker/train/data_plan.h"

#include <algorithm>
#include <stdexcept>

namespace dex::train {

DataPlan::DataPlan(std::vector<int32_t> lengths, const Options& options)
    : lengths_(std::move(lengths)), options_(options) {
  if (lengths_.empty()) throw std::runtime_error("[DataPlan] there is no example to train on");
  if (options_.batch_size < 1) throw std::runtime_error("[DataPlan] batch_size must be ≥ 1");
  const auto unlimited = options_.max_steps == 0;
  for (int64_t pass = 0; unlimited ? pass < options_.passes : updates() < options_.max_steps;
       ++pass) {
    const auto packs = static_cast<int64_t>(packs_of(pass).size());
    const int64_t count = (packs + options_.batch_size - 1) / options_.batch_size;
    first_update_.push_back(updates());
    updates_in_.push_back(count);
    const int64_t left = unlimited ? count : std::min(count, options_.max_steps - updates());
    pass_of_.insert(pass_of_.end(), left, static_cast<int32_t>(pass));
  }
}

const std::vector<Pack>& DataPlan::packs_of(int64_t pass) {
  if (pass != loaded_pass_) {
    packs_ = pack_pass(lengths_, examples_of_pass(options_.groups, lengths_.size(), pass),
                       options_.packing, options_.seed, static_cast<uint64_t>(pass));
    loaded_pass_ = pass;
  }
  return packs_;
}

DataPlan::Update DataPlan::update(int64_t u) {
  if (u < 0 || u >= updates()) {
    throw std::runtime_error("[DataPlan] update must be in [0, " + std::to_string(updates()) +
                             "), got " + std::to_string(u));
  }
  Update out;
  out.pass = pass_of_[u];
  const auto& packs = packs_of(out.pass);
  const int64_t index = u - first_update_[out.pass];
  const auto begin = static_cast<size_t>(index * options_.batch_size);
  const size_t end = std::min(packs.size(), begin + options_.batch_size);
  out.packs = std::span<const Pack>(packs).subspan(begin, end - begin);
  out.ends_pass = index + 1 == updates_in_[out.pass];
  out.passes_done =
      static_cast<double>(out.pass) + static_cast<double>(end) / static_cast<double>(packs.size());
  return out;
}

}  // namespace dex::train
