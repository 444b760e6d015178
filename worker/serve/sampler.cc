#include "worker/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/kernels/philox.h"
#include "worker/kernels/row_ops.h"

namespace dex::serve {

std::vector<std::pair<int32_t, float>> likeliest(std::span<const float> logits, int32_t count,
                                                 double log_sum) {
  // A heap of the best so far, the worst of them on top: one comparison for nearly every logit.
  using Entry = std::pair<int32_t, float>;
  const auto better = [](const Entry& a, const Entry& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  };
  std::vector<Entry> best;
  best.reserve(static_cast<size_t>(count) + 1);
  for (size_t i = 0; count > 0 && i < logits.size(); ++i) {
    if (best.size() == static_cast<size_t>(count) && !(logits[i] > best.front().second)) continue;
    best.emplace_back(static_cast<int32_t>(i), logits[i]);
    std::ranges::push_heap(best, better);
    if (best.size() > static_cast<size_t>(count)) {
      std::ranges::pop_heap(best, better);
      best.pop_back();
    }
  }
  std::ranges::sort(best, better);
  for (Entry& entry : best) entry.second = static_cast<float>(entry.second - log_sum);
  return best;
}

Sampler::Sampler(const Sampling& options, std::span<const int32_t> prompt, int32_t top_logprobs)
    : options_(options), top_logprobs_(top_logprobs) {
  if (options_.repetition_penalty != 1) {
    for (const int32_t token : prompt) seen_.try_emplace(token, 0);
  }
}

Choice Sampler::choose(std::span<float> logits, std::span<const int32_t> banned) {
  Choice choice;
  double log_sum = 0;
  if (top_logprobs_ >= 0) {
    log_sum = kernels::log_sum_exp(logits);
    choice.finite = std::isfinite(log_sum);
    if (!choice.finite) return choice;
    choice.top = likeliest(logits, top_logprobs_, log_sum);
  }
  changed_.clear();
  penalise(logits);
  for (const int32_t token : banned) change(logits, token, -std::numeric_limits<float>::infinity());

  choice.token = static_cast<int32_t>(kernels::arg_max(logits));
  const float maximum = logits[choice.token];
  choice.finite = std::isfinite(maximum);
  if (!choice.finite) return choice;
  const float greedy_raw = raw(logits, choice.token);
  if (options_.temperature > 0) {
    // Weights overwrite the logits; what the reply says of the chosen token is taken from the raw
    // ones.
    if (top_logprobs_ >= 0) kept_.assign(logits.begin(), logits.end());
    choice.token = draw(logits, maximum);
    if (choice.token < 0) return choice.finite = false, choice;
    if (top_logprobs_ >= 0) choice.logprob = static_cast<float>(raw(kept_, choice.token) - log_sum);
  } else {
    choice.logprob = static_cast<float>(greedy_raw - log_sum);
  }
  ++seen_[choice.token];
  ++index_;
  return choice;
}

void Sampler::change(std::span<float> logits, int32_t token, float value) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) return;
  changed_.emplace_back(token, logits[token]);
  logits[token] = value;
}

float Sampler::raw(std::span<const float> logits, int32_t token) const {
  for (const auto& [id, value] : changed_) {
    if (id == token) return value;  // the first entry is the oldest
  }
  return logits[token];
}

void Sampler::penalise(std::span<float> logits) {
  const auto repetition = static_cast<float>(options_.repetition_penalty);
  const bool others = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  if (repetition == 1 && !others) return;
  for (const auto& [token, count] : seen_) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    float value = logits[token];
    value = value > 0 ? value / repetition : value * repetition;  // transformers' rule
    if (count > 0) {
      value -= static_cast<float>(options_.presence_penalty + options_.frequency_penalty * count);
    }
    change(logits, token, value);
  }
}

int32_t Sampler::draw(std::span<float> logits, float maximum) {
  const double total =
      kernels::exp_scaled(logits, maximum, static_cast<float>(1.0 / options_.temperature));
  if (!std::isfinite(total)) return -1;
  const double unit = kernels::random_unit(options_.seed, 0, index_);
  const std::span<const float> weights = logits;
  const bool all = options_.top_k <= 0 && options_.top_p >= 1 && options_.min_p <= 0;
  if (all) {
    double left = unit * total;
    int32_t last = -1;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] <= 0) continue;
      last = static_cast<int32_t>(i);
      if ((left -= weights[i]) < 0) return last;
    }
    return last;  // rounding: the sum of the parts was a little smaller than the total
  }
  candidates_.clear();
  double kept = total;
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < weights.size()) {
    keep_top_k(weights);
    kept = 0;
    for (const Candidate& c : candidates_) kept += c.weight;
  } else {
    // The nucleus holds no token below (1 − top_p)/V: all of those together are less than what is
    // cut off.
    const double least =
        (1 - std::min(1.0, options_.top_p)) / static_cast<double>(weights.size()) * total * 0.999;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0 && weights[i] >= least)
        candidates_.push_back({weights[i], static_cast<int32_t>(i)});
    }
  }
  if (options_.top_p < 1) keep_top_p(kept);
  if (options_.min_p > 0) {  // relative to the likeliest, whose weight is 1
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
  }
  double sum = 0;
  for (const Candidate& c : candidates_) sum += c.weight;
  double left = unit * sum;
  for (const Candidate& c : candidates_) {
    if ((left -= c.weight) < 0) return c.token;
  }
  return candidates_.empty() ? -1 : candidates_.back().token;
}

void Sampler::keep_top_k(std::span<const float> weights) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
  };
  const auto k = static_cast<size_t>(options_.top_k);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0 || (candidates_.size() == k && !(weights[i] > candidates_.front().weight)))
      continue;
    candidates_.push_back({weights[i], static_cast<int32_t>(i)});
    std::ranges::push_heap(candidates_, better);
    if (candidates_.size() > k) {
      std::ranges::pop_heap(candidates_, better);
      candidates_.pop_back();
    }
  }
  std::ranges::sort(candidates_, better);
}

void Sampler::keep_top_p(double total) {
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
  });
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && sum < options_.top_p * total)
    sum += candidates_[kept++].weight;
  candidates_.resize(std::max<size_t>(kept, std::min<size_t>(1, candidates_.size())));
}

}  // namespace dex::serve
