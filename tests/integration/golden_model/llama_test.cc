// The trainer's forward pass against transformers: logits of the base, log-probabilities with
// random adapters.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/golden_model/golden.h"
#include "tests/integration/golden_model/random_adapter.h"
#include "worker/model/llama.h"

namespace dex::golden {
namespace {

class LlamaGoldenTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    config_ = new model::Config(model::load_config(model_folder()));
    weights_ =
        new model::Weights(model::load_weights(model_folder(), *config_, {.dtype = at::kFloat}));
  }
  static void TearDownTestSuite() {
    delete weights_;
    delete config_;
  }
  // [T, V]
  static at::Tensor logits(const std::vector<int64_t>& tokens,
                           const model::Adaptation& adaptation = {}) {
    const at::NoGradGuard no_grad;
    return model::Llama(*config_, *weights_).logits(model::pack({tokens}), adaptation);
  }
  static std::vector<double> token_logprobs(const std::vector<int64_t>& tokens,
                                            const at::Tensor& logits) {
    const auto all = at::log_softmax(logits, -1, at::kDouble);
    std::vector<double> chosen;
    for (size_t i = 1; i < tokens.size(); ++i) {
      chosen.push_back(
          all.select(0, static_cast<int64_t>(i) - 1).select(0, tokens[i]).item<double>());
    }
    return chosen;
  }

  static model::Config* config_;
  static model::Weights* weights_;
};
model::Config* LlamaGoldenTest::config_ = nullptr;
model::Weights* LlamaGoldenTest::weights_ = nullptr;

TEST_F(LlamaGoldenTest, LogitsOfTheBaseAreThoseOfTransformers) {
  const auto golden = read("model.json");
  for (const auto& [name, expected] : golden["cases"].items()) {
    const auto found = logits(tokens_of(expected));
    for (const auto& at_position : expected["logits"]) {
      const auto row = found.select(0, at_position["position"].get<int64_t>());
      SCOPED_TRACE(name + " at " + at_position["position"].dump());
      EXPECT_EQ(row.argmax().item<int64_t>(), at_position["argmax"].get<int64_t>());
      EXPECT_NEAR(row.max().item<double>(), at_position["max"].get<double>(), 1e-3);
      EXPECT_NEAR(at::logsumexp(row.to(at::kDouble), 0).item<double>(),
                  at_position["logsumexp"].get<double>(), 1e-3);
      const auto first = at_position["first"].get<std::vector<double>>();
      for (size_t i = 0; i < first.size(); ++i)
        EXPECT_NEAR(row.select(0, static_cast<int64_t>(i)).item<double>(), first[i], 1e-3);
    }
    EXPECT_LT(largest_difference(token_logprobs(tokens_of(expected), found),
                                 expected["token_logprobs"].get<std::vector<double>>()),
              2e-3)
        << name;
  }
}

TEST_F(LlamaGoldenTest, RandomAdaptersAnswerAsInTransformers) {
  const auto golden = read("adapter.json");
  const auto tokens = golden["tokens"].get<std::vector<int64_t>>();
  for (const auto& [name, expected] : golden["cases"].items()) {
    const auto adapter = random_adapter(expected, golden["rule"], *config_, *weights_);
    const auto found = token_logprobs(tokens, logits(tokens, adapter.adaptation));
    EXPECT_LT(largest_difference(found, expected["token_logprobs"].get<std::vector<double>>()),
              2e-3)
        << name;
    // The adapter acts at all: it moves at least one token by far more than the tolerance.
    EXPECT_GT(largest_difference(found, golden["base_token_logprobs"].get<std::vector<double>>()),
              0.5)
        << name;
  }
}

TEST_F(LlamaGoldenTest, RuleOfTheRandomAdaptersIsTheSame) {
  const auto golden = read("adapter.json");
  const auto first = golden["rule"]["first_of_tensor_5"].get<std::vector<float>>();
  EXPECT_THAT(uniform(5, static_cast<int64_t>(first.size())), ::testing::ElementsAreArray(first));
}

}  // namespace
}  // namespace dex::golden
