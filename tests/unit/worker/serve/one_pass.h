#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/manual_clock.h"
#include "tests/unit/worker/serve/collector.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"
#include "worker/serve/engine.h"

namespace dex::serve::testing {

// A model in the engine, held against the trainer's forward pass on the same weights: what is
// computed in chunks and token by token is one pass. An adaptation that is null is the base.
class OnePass {
 public:
  OnePass(std::shared_ptr<const ServingModel> served, model::Weights weights)
      : served_(std::move(served)), weights_(std::move(weights)) {}

  [[nodiscard]] std::shared_ptr<const ServingAdapter> adapter(
      const model::Adaptation* adaptation) const {
    if (adaptation == nullptr) return nullptr;
    return make_serving_adapter(model::make_adapter(*adaptation), "a", std::string(64, 'a'),
                                *served_);
  }

  // What each request yields, all of them in one engine.
  [[nodiscard]] std::vector<std::shared_ptr<Collector>> ask_all(
      const std::vector<std::pair<Request, std::shared_ptr<const ServingAdapter>>>& requests,
      int32_t chunk_tokens = 256) const {
    Engine engine(served_, nullptr, {.threads = 2, .chunk_tokens = chunk_tokens}, clock_);
    std::vector<std::shared_ptr<Collector>> out;
    for (const auto& [request, adapter] : requests) {
      out.push_back(std::make_shared<Collector>());
      const auto status = engine.submit(out.size(), request, adapter, out.back());
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    engine.run_until_idle();
    for (const auto& one : out)
      EXPECT_TRUE(one->outcome.error.ok()) << one->outcome.error.to_string();
    return out;
  }
  [[nodiscard]] std::shared_ptr<Collector> ask(Request request, const model::Adaptation* adaptation,
                                               int32_t chunk_tokens = 256) const {
    return ask_all({{std::move(request), adapter(adaptation)}}, chunk_tokens).front();
  }

  // The trainer's logits of every position, [N, V].
  [[nodiscard]] at::Tensor logits(const std::vector<int32_t>& tokens,
                                  const model::Adaptation* adaptation) const {
    const at::NoGradGuard no_grad;
    return model::Llama(served_->config, weights_)
        .logits(model::pack({{tokens.begin(), tokens.end()}}),
                adaptation != nullptr ? *adaptation : model::Adaptation());
  }

  // Every token of a scored prompt but the first has its log-probability.
  static void expect_scores(const at::Tensor& logits, const std::vector<int32_t>& tokens,
                            const Collector& got) {
    const at::Tensor want = at::log_softmax(logits.to(at::kDouble), 1);
    ASSERT_EQ(got.logprobs.size(), tokens.size());
    for (size_t i = 1; i < tokens.size(); ++i) {
      EXPECT_NEAR(*got.logprobs[i].logprob,
                  want[static_cast<int64_t>(i) - 1][tokens[i]].item<double>(), 1e-4)
          << "token " << i;
    }
  }

  // Forty tokens decoded behind the prompt are those of a pass over all of it, and the same rows in
  // chunks of other sizes have the same numbers, to the bit.
  void expect_prefill_and_decode(const std::vector<int32_t>& prompt,
                                 const model::Adaptation* adaptation) const {
    constexpr int32_t kDecoded = 40;
    std::vector<int32_t> all = prompt;
    const auto got = ask(greedy(prompt, kDecoded), adaptation);
    ASSERT_EQ(got->tokens.size(), static_cast<size_t>(kDecoded));
    all.insert(all.end(), got->tokens.begin(), got->tokens.end());
    const at::Tensor logits = this->logits(all, adaptation);
    const at::Tensor want = at::log_softmax(logits.to(at::kDouble), 1);
    for (size_t i = 0; i < got->tokens.size(); ++i) {
      const auto row = static_cast<int64_t>(prompt.size() + i) - 1;
      const double likeliest = want[row].max().item<double>();
      EXPECT_NEAR(*got->logprobs[i].logprob, likeliest, 1e-4) << i;
      EXPECT_NEAR(want[row][got->tokens[i]].item<double>(), likeliest, 1e-4) << i;
    }
    const auto whole = ask(scoring(all), adaptation), parts = ask(scoring(all), adaptation, 32);
    expect_scores(logits, all, *whole);
    EXPECT_EQ(whole->values(), parts->values());
  }

 private:
  std::shared_ptr<const ServingModel> served_;
  model::Weights weights_;
  support::ManualClock clock_;
};

}  // namespace dex::serve::testing
