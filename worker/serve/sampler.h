#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/serve/request.h"

namespace dex::serve {

// A token and how likely the raw logits made it.
struct Choice {
  int32_t token = 0;
  float logprob = 0;  // only with logprobs
  std::vector<std::pair<int32_t, float>>
      top;             // the likeliest and their log-probabilities, likeliest first
  bool finite = true;  // false: the logits hold no usable number; the rest means nothing
};

// The likeliest `count` of a row of logits with their log-probabilities; ties: the lower id first.
std::vector<std::pair<int32_t, float>> likeliest(std::span<const float> logits, int32_t count,
                                                 double log_sum);

// Chooses the tokens of one completion (api.md §6). The order is: penalties, then temperature,
// top_k, top_p, min_p, as in transformers. The i-th choice is a function of logits, history, seed
// and i alone (Philox), so streamed, whole and recomputed replies are equal. Not thread-safe; one a
// completion.
class Sampler {
 public:
  // `prompt` counts for the repetition penalty. `top_logprobs` < 0: no log-probabilities.
  Sampler(const Sampling& options, std::span<const int32_t> prompt, int32_t top_logprobs);

  // Uses `logits` as scratch. `banned` ids are not chosen (end of sequence before min_tokens).
  Choice choose(std::span<float> logits, std::span<const int32_t> banned);

 private:
  struct Candidate {
    float weight;
    int32_t token;
  };

  void change(std::span<float> logits, int32_t token, float value);  // remembers the raw logit
  [[nodiscard]] float raw(std::span<const float> logits, int32_t token) const;
  void penalise(std::span<float> logits);
  int32_t draw(std::span<float> logits, float maximum);
  void keep_top_k(std::span<const float> weights);
  void keep_top_p(double total);

  Sampling options_;
  int32_t top_logprobs_;
  uint64_t index_ = 0;
  std::unordered_map<int32_t, int32_t>
      seen_;  // token → how often in the completion; prompt only: 0
  std::vector<std::pair<int32_t, float>> changed_;
  std::vector<Candidate> candidates_;
  std::vector<float> kept_;  // the logits, while their weights are in their place
};

}  // namespace dex::serve
