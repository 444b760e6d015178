#include "worker/evaluate/head_scores.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/branch_effect.h"
#include "worker/evaluate/held_out_loss.h"
#include "worker/kernels/rms_norm.h"
#include "worker/kernels/rope.h"
#include "worker/model/dex_branch.h"
#include "worker/model/rope_frequencies.h"

namespace dex::evaluate {
namespace {

using at::Tensor;
using train::testing::tiny_config;
using train::testing::tiny_rows;
using train::testing::tiny_weights;

class HeadScoresTest : public ::testing::Test {
 protected:
  HeadScoresTest()
      : config_(tiny_config()), weights_(tiny_weights(config_)), llama_(config_, weights_) {
    at::set_num_threads(1);
    for (auto& row : tiny_rows(8, 60)) {
      while (row.size() < 40) row.push_back(static_cast<int32_t>(row.size() % 97));
      rows_.push_back(row);
      ones_.emplace_back(row.size(), 1.0f);
    }
    for (size_t r = 0; r < rows_.size(); ++r) documents_.push_back({rows_[r], ones_[r]});
  }

  // Attention maps of layer 0 of one document by the formula: [H, T, T].
  Tensor maps(const std::vector<int32_t>& row) const {
    const auto length = static_cast<int64_t>(row.size());
    const std::vector<int64_t> ids(row.begin(), row.end());
    const Tensor x = kernels::rms_norm_plain(weights_.embed.index_select(0, at::tensor(ids)),
                                             weights_.layers[0].input_norm, config_.rms_norm_eps);
    const auto [cos, sin] =
        kernels::rope_angles(at::arange(length), model::rope_frequencies(config_));
    const auto heads = [&](const Tensor& w, int64_t count) {
      return kernels::rope_plain(x.mm(w.t()).view({length, count, config_.head_dim}), cos, sin)
          .transpose(0, 1);
    };
    const Tensor q = heads(weights_.layers[0].q, config_.heads);
    const Tensor k =
        heads(weights_.layers[0].k, config_.kv_heads).repeat_interleave(config_.heads_per_kv(), 0);
    const Tensor scores =
        q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(config_.head_dim));
    const Tensor future = at::ones({length, length}, at::kBool).triu(1);
    return scores.masked_fill(future, -INFINITY).softmax(-1).to(at::kDouble);
  }

  // −Σ A ln A of rows ≥ first, mean over rows; [H].
  static Tensor direct_entropy(const Tensor& maps, int64_t first, bool normalized) {
    Tensor rows = -(maps * maps.clamp_min(1e-300).log()).sum(-1);
    if (normalized) rows = rows / at::arange(1, rows.size(1) + 1, at::kDouble).log();
    return rows.slice(1, first).mean(1);
  }

  model::Config config_;
  model::Weights weights_;
  model::Llama llama_;
  std::vector<std::vector<int32_t>> rows_;
  std::vector<std::vector<float>> ones_;
  std::vector<Document> documents_;
  kernels::LinearCrossEntropy cross_entropy_{7};
};

TEST_F(HeadScoresTest, EntropyIsThatOfTheMaps) {
  const auto scores = measure_heads(llama_, {}, documents_, {.importance = false}, cross_entropy_);
  EXPECT_EQ(scores.skip_rows, 32);
  EXPECT_FALSE(scores.short_sequences);
  for (const bool normalized : {false, true}) {
    Tensor mean = at::zeros({config_.heads}, at::kDouble);
    for (const auto& row : rows_) mean += direct_entropy(maps(row), 32, normalized) / 8.0;
    const auto& found = (normalized ? scores.entropy_normalized : scores.entropy_nats)[0];
    for (int64_t h = 0; h < config_.heads; ++h)
      EXPECT_NEAR(found[h], mean[h].item<double>(), 5e-6) << h;
  }
  for (const auto& layer : scores.entropy_nats) {
    for (const double entropy : layer) {
      EXPECT_GE(entropy, 0);
      EXPECT_LE(entropy, std::log(60.0));
    }
  }
}

TEST_F(HeadScoresTest, ShortSequencesFallBackToNormalizedRowsFromOne) {
  std::vector<Document> documents;
  for (const Document& document : documents_) {
    documents.push_back({document.ids.first(20), document.weights.first(20)});
  }
  const auto scores = measure_heads(llama_, {}, documents, {.importance = false}, cross_entropy_);
  EXPECT_TRUE(scores.short_sequences);
  EXPECT_EQ(scores.skip_rows, 1);
  Tensor mean = at::zeros({config_.heads}, at::kDouble);
  for (const auto& row : rows_) {
    mean += direct_entropy(maps({row.begin(), row.begin() + 20}), 1, true) / 8.0;
  }
  for (int64_t h = 0; h < config_.heads; ++h) {
    EXPECT_NEAR(scores.entropy_nats[0][h], mean[h].item<double>(), 5e-6);
  }
}

TEST_F(HeadScoresTest, ScoresDoNotDependOnTheBatch) {
  const auto one = measure_heads(llama_, {}, documents_, {.batch_tokens = 1}, cross_entropy_);
  for (const int64_t tokens : {100, 1000}) {  // two of the documents, all of them
    const auto many =
        measure_heads(llama_, {}, documents_, {.batch_tokens = tokens}, cross_entropy_);
    for (int64_t l = 0; l < config_.layers; ++l) {
      for (int64_t h = 0; h < config_.heads; ++h) {
        EXPECT_NEAR(many.importance[l][h], one.importance[l][h], 1e-5 * one.importance[l][h]);
        EXPECT_NEAR(many.entropy_nats[l][h], one.entropy_nats[l][h], 1e-5);
      }
    }
  }
}

// |∂L/∂ξ| by central differences: scaling a head's output by 1 ± ε is scaling its columns of W_O.
TEST_F(HeadScoresTest, ImportanceEqualsFiniteDifferencesOfTheGate) {
  const auto scores = measure_heads(llama_, {}, documents_, {.entropy = false}, cross_entropy_);
  const double epsilon = 1e-3;
  const auto loss = [&](const Document& document, int64_t layer, int64_t head, double factor) {
    model::Weights scaled = weights_;
    scaled.layers[layer].o = weights_.layers[layer].o.clone();
    scaled.layers[layer]
        .o.slice(1, head * config_.head_dim, (head + 1) * config_.head_dim)
        .mul_(factor);
    const model::Llama llama(config_, scaled);
    const auto batch = supervise({document});
    const Tensor logits = llama.logits(batch.batch).to(at::kDouble);
    const Tensor rows = logits.log_softmax(-1).slice(0, 0, -1);
    return -rows.gather(1, batch.targets.slice(0, 0, -1).unsqueeze(1)).mean().item<double>();
  };
  for (const int64_t layer : {0, 1}) {
    for (const int64_t head : {0, 3}) {
      double mean = 0;
      for (const Document& document : documents_) {
        mean += std::abs(loss(document, layer, head, 1 + epsilon) -
                         loss(document, layer, head, 1 - epsilon)) /
                (2 * epsilon) / 8.0;
      }
      EXPECT_NEAR(scores.importance[layer][head], mean, 2e-3 * mean + 2e-4) << layer << " " << head;
    }
  }
}

TEST_F(HeadScoresTest, OnlyTheGatesGetAGradient) {
  model::DexOptions options;
  options.lambda.schedule = model::Schedule::kConstant;
  options.lambda.value = 0.3;
  auto adaptation = model::initial_adaptation(options, config_, weights_, {{1, 2}, {0}}, 1);
  model::set_lambda(adaptation, 5);
  std::vector<Tensor> trained;
  for (auto& layer : adaptation.layers) {
    for (Tensor* each : {&layer.k, &layer.v, &layer.o, &layer.branch.w_d})
      trained.push_back(each->requires_grad_(true));
  }
  const auto scores = measure_heads(llama_, adaptation, documents_, {}, cross_entropy_);
  EXPECT_GT(scores.importance[1][0], 0);
  for (const Tensor& each : trained) EXPECT_FALSE(each.grad().defined());
}

TEST_F(HeadScoresTest, HeldOutLossIsTheWeightedMeanOverAllTokens) {
  ones_[0].assign(ones_[0].size(), 0.5f);
  ones_[1].assign(ones_[1].size(), 0.0f);
  documents_[0] = {rows_[0], ones_[0]};
  documents_[1] = {rows_[1], ones_[1]};
  double sum = 0, weight = 0;
  int64_t labels = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const auto batch = supervise({documents_[r]});
    const Tensor logp = llama_.logits(batch.batch).to(at::kDouble).log_softmax(-1);
    for (size_t i = 1; i < rows_[r].size(); ++i) {
      sum -= ones_[r][i] * logp[static_cast<int64_t>(i) - 1][rows_[r][i]].item<double>();
      weight += ones_[r][i];
      labels += ones_[r][i] > 0;
    }
  }
  for (const int64_t tokens : {1, 64, 1000}) {
    const auto found =
        held_out_loss(llama_, {}, supervise_in_batches(documents_, tokens), cross_entropy_);
    EXPECT_NEAR(found.loss, sum / weight, 1e-6);
    EXPECT_EQ(found.labels, labels);
    EXPECT_GE(found.token_accuracy, 0);
    EXPECT_LE(found.token_accuracy, 1);
  }
}

// method.md §2.6 by hand: O and D of each layer from an observer of our own.
TEST_F(HeadScoresTest, BranchEffectIsTheRatioOfNorms) {
  model::DexOptions options;
  options.lambda.schedule = model::Schedule::kConstant;
  options.lambda.value = 0.3;
  options.w_d_init = model::BranchInit::kLinear;
  auto adaptation = model::initial_adaptation(options, config_, weights_, {{1, 2}, {}}, 1);
  model::set_lambda(adaptation, 5);
  const auto batches = supervise_in_batches(documents_, 100);
  const auto effect = measure_branch_effect(llama_, adaptation, batches, cross_entropy_);
  ASSERT_EQ(effect.layers.size(), 2u);
  EXPECT_FALSE(effect.layers[1].ratio.has_value());
  double o_norm = 0, d_norm = 0, product = 0;
  for (const auto& batch : batches) {
    model::Observer observer;
    observer.on_branch = [&](int64_t layer, const Tensor& o, const Tensor&) {
      if (layer != 0) return;
      const Tensor heads = o.slice(1, 1, 3).to(at::kDouble);
      const Tensor difference = 0.3 * heads.matmul(adaptation.layers[0].branch.w_d.to(at::kDouble));
      o_norm += heads.square().sum().item<double>();
      d_norm += difference.square().sum().item<double>();
      product += (heads * difference).sum().item<double>();
    };
    llama_.hidden(batch.batch, adaptation, observer);
  }
  EXPECT_NEAR(*effect.layers[0].ratio, std::sqrt(d_norm / o_norm), 1e-5);
  EXPECT_NEAR(effect.layers[0].cosine, product / std::sqrt(d_norm * o_norm), 1e-5);
  EXPECT_DOUBLE_EQ(effect.value, *effect.layers[0].ratio);
  EXPECT_EQ(effect.verdict, BranchEffect::Verdict::kActive);
  const double with = held_out_loss(llama_, adaptation, batches, cross_entropy_).loss;
  const double without = held_out_loss(llama_, {}, batches, cross_entropy_).loss;
  EXPECT_NEAR(effect.ce_delta, without - with, 1e-6);
}

TEST_F(HeadScoresTest, AZeroBranchIsInert) {
  auto adaptation = model::initial_adaptation({}, config_, weights_, {{1, 2}, {0}}, 1);
  model::set_lambda(adaptation, 0);
  const auto effect = measure_branch_effect(llama_, adaptation,
                                            supervise_in_batches(documents_, 100), cross_entropy_);
  EXPECT_EQ(effect.verdict, BranchEffect::Verdict::kInert);
  EXPECT_EQ(effect.value, 0);
  EXPECT_EQ(effect.ce_delta, 0);
}

TEST(BranchEffectTest, VerdictsHaveTheirThresholds) {
  EXPECT_EQ(verdict(0.0019), BranchEffect::Verdict::kInert);
  EXPECT_EQ(verdict(0.002), BranchEffect::Verdict::kWeak);
  EXPECT_EQ(verdict(0.02), BranchEffect::Verdict::kActive);
  // method.md §11.1, S = {1}, λ = 0.3: r = 0.311950.
  const Tensor o = at::tensor({3.0, -1.0}), d = 0.3 * at::tensor({-0.5, -3.25});
  EXPECT_NEAR((d.norm() / o.norm()).item<double>(), 0.311950, 5e-7);
}

}  // namespace
}  // namespace dex::evaluate
