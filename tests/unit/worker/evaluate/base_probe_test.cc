#include "worker/evaluate/base_probe.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dex::evaluate {
namespace {

// Two tokens, A = 0 and B = 1, whose next-token distributions are set by hand: no layer changes
// anything, so that the state after A is (2, 2, 0 …) and after B (2, −2, 0 …).
class BaseProbeTest : public ::testing::Test {
 protected:
  BaseProbeTest() {
    config_.vocab_size = 3;
    config_.hidden_size = config_.head_dim = config_.intermediate_size = 8;
    config_.layers = config_.heads = config_.kv_heads = 1;
    config_.max_position_embeddings = 16;
    config_.rms_norm_eps = 1e-12;
    config_.rope_theta = 10000;
    weights_.embed = at::zeros({3, 8});
    for (int64_t id = 0; id < 3; ++id) {
      weights_.embed[id][0].fill_(1);
      weights_.embed[id][1].fill_(id == 0 ? 1 : -1);
    }
    model::LayerWeights layer;
    layer.input_norm = layer.post_norm = at::ones({8});
    layer.q = layer.k = layer.v = layer.o = at::zeros({8, 8});
    layer.gate = layer.up = layer.down = at::zeros({8, 8});
    weights_.layers.push_back(layer);
    weights_.norm = at::ones({8});
    weights_.lm_head = head({0.5, 0.25, 0.25}, {0.25, 0.25, 0.5});
  }

  // The head that gives these distributions after A and after B.
  static at::Tensor head(const std::vector<double>& after_a, const std::vector<double>& after_b) {
    at::Tensor out = at::zeros({3, 8});
    for (size_t i = 0; i < 3; ++i) {
      const double a = std::log(after_a[i]), b = std::log(after_b[i]);
      out[static_cast<int64_t>(i)][0].fill_((a + b) / 4);
      out[static_cast<int64_t>(i)][1].fill_((a - b) / 4);
    }
    return out;
  }

  static std::vector<SupervisedBatch> batches(const std::vector<std::vector<int32_t>>& rows,
                                              int64_t max_tokens) {
    std::vector<std::vector<float>> weights;
    std::vector<Document> documents;
    for (const auto& row : rows) weights.emplace_back(row.size(), 1.0f);
    for (size_t i = 0; i < rows.size(); ++i) documents.push_back({rows[i], weights[i]});
    return supervise_in_batches(documents, max_tokens);
  }

  model::Config config_;
  model::Weights weights_;
};

// KL after A: ½ ln(½ / ¼) + ¼ ln(¼ / ½) + 0 = ¼ ln 2; after B nothing has changed.
TEST_F(BaseProbeTest, GivesTheNumbersByHand) {
  const model::Llama llama(config_, weights_);
  model::Adaptation adaptation;
  adaptation.lm_head = head({0.25, 0.5, 0.25}, {0.25, 0.25, 0.5});
  const std::vector<std::vector<int32_t>> rows{{0, 1, 0}, {0, 0, 0}};
  for (const int64_t max_tokens : {3, 100}) {  // a row a batch, and both in one
    const BaseProbe probe(llama, {}, batches(rows, max_tokens));
    const BaseDivergence found = probe.measure(adaptation);
    const double after_a = 0.25 * std::log(2.0);
    EXPECT_EQ(found.tokens, 4);
    EXPECT_NEAR(found.kl, 3 * after_a / 4, 1e-6);  // 0.129965
    EXPECT_NEAR(found.base_loss, 1.039721, 1e-6);  // A→B ln 4, B→A ln 4, twice A→A ln 2
    EXPECT_NEAR(found.loss, 1.213008, 1e-6);       // ln 2, ln 4, twice ln 4
    ASSERT_EQ(found.document_kl.size(), 2u);
    EXPECT_NEAR(found.document_kl[0], after_a, 1e-6);
    EXPECT_NEAR(found.document_kl[1], 2 * after_a, 1e-6);
    EXPECT_EQ(found.document_tokens, (std::vector<int64_t>{2, 2}));
  }
}

// KL is not symmetric: what counts is what the base says, here a token that the adapted model all
// but forgets.
TEST_F(BaseProbeTest, CountsWhatTheBaseSays) {
  const model::Llama llama(config_, weights_);
  model::Adaptation adaptation;
  adaptation.lm_head = head({0.01, 0.98, 0.01}, {0.25, 0.25, 0.5});
  const BaseProbe probe(llama, {}, batches({{0, 0}}, 100));
  const double expected =
      0.5 * std::log(0.5 / 0.01) + 0.25 * std::log(0.25 / 0.98) + 0.25 * std::log(0.25 / 0.01);
  EXPECT_NEAR(probe.measure(adaptation).kl, expected, 1e-5);
}

TEST_F(BaseProbeTest, OfTheBaseItselfIsExactlyZero) {
  const model::Llama llama(config_, weights_);
  const BaseProbe probe(llama, {}, batches({{0, 1, 0, 0, 1}}, 100));
  const BaseDivergence found = probe.measure({});
  EXPECT_EQ(found.kl, 0);
  EXPECT_EQ(found.loss, found.base_loss);
}

TEST_F(BaseProbeTest, NeedsATokenToPredictAndSaysWhenItHasRunABatch) {
  const model::Llama llama(config_, weights_);
  EXPECT_THROW(BaseProbe(llama, {}, {}), std::runtime_error);
  EXPECT_THROW(BaseProbe(llama, {}, batches({{0}}, 100)), std::runtime_error);
  int runs = 0;
  const BaseProbe probe(llama, {}, batches({{0, 1}, {1, 0}}, 2), [&] { ++runs; });
  EXPECT_EQ(runs, 2);
  probe.measure({}, [&] { ++runs; });
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace dex::evaluate
