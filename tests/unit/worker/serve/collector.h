#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/serve/request.h"

namespace dex::serve::testing {

// Keeps everything that a request yields.
class Collector final : public Listener {
 public:
  void on_delta(Delta delta) override {
    text += delta.text;
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    for (auto& entry : delta.logprobs) logprobs.push_back(std::move(entry));
    if (after_delta) after_delta();
  }
  void on_done(Outcome ended) override {
    outcome = std::move(ended);
    ++ends;
  }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> out;
    for (const auto& entry : logprobs) {
      if (entry.logprob) out.push_back(*entry.logprob);
    }
    return out;
  }

  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprob> logprobs;
  Outcome outcome;
  int ends = 0;
  std::function<void()> after_delta;
};

inline Request greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.top_logprobs = 0;
  return request;
}

inline Request scoring(std::vector<int32_t> prompt) {
  Request request = greedy(std::move(prompt), 0);
  request.echo = true;
  return request;
}

}  // namespace dex::serve::testing
