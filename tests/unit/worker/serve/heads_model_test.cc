// Heads that evaluations see, against the analyses themselves (which evaluate_test holds against
// transformers).
#include "worker/serve/heads_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/evaluate/subject.h"
#include "worker/model/adapter.h"

namespace dex::serve {
namespace {

std::vector<int32_t> ids(int32_t length, int32_t seed) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < length; ++i) out.push_back((seed * 31 + i * i * 7 + i * 3 + 5) % 97);
  return out;
}

constexpr evaluate::HeadQuestion kAll = {.entropy = true,
                                         .importance = true,
                                         .cosine = true,
                                         .cka = true,
                                         .sparsity = true,
                                         .skip_rows = 4};

// The mean over documents, one by one, is what the analyses say of them together (method.md §4.1,
// §4.2, §4.3).
TEST(HeadsModelTest, DocumentByDocumentGivesTheMeansOfAllTogether) {
  const support::TemporaryDirectory dir;
  train::testing::write_tiny_model(dir.path());
  const std::vector<std::vector<int32_t>> rows = {ids(40, 1), ids(23, 2), ids(31, 3)};
  HeadsModel heads(dir.path(), 1);
  std::vector<evaluate::HeadMeasures> each;
  for (const auto& row : rows) each.push_back(heads.measure({}, row, kAll, {}));

  const auto config = model::load_config(dir.path());
  const auto weights = model::load_weights(dir.path(), config, {.dtype = at::kFloat});
  const model::Llama llama(config, weights);
  std::vector<std::vector<float>> ones;
  for (const auto& row : rows) ones.emplace_back(row.size(), 1.0F);
  std::vector<evaluate::Document> documents;
  for (size_t r = 0; r < rows.size(); ++r) documents.push_back({rows[r], ones[r]});
  kernels::LinearCrossEntropy cross_entropy;
  const auto scores =
      evaluate::measure_heads(llama, {}, documents, {.skip_rows = 4}, cross_entropy);
  const auto structure = evaluate::measure_head_structure(
      llama, {}, documents, {.cosine = true, .cka = false, .sparsity = false, .skip_rows = 4});
  const auto mean = [&](const auto& of) {
    double sum = 0;
    for (const auto& measures : each) sum += of(measures);
    return sum / static_cast<double>(each.size());
  };
  for (size_t l = 0; l < 2; ++l) {
    for (size_t h = 0; h < 4; ++h) {
      EXPECT_NEAR(mean([&](const auto& m) { return m.entropy[l][h]; }), scores.entropy_nats[l][h],
                  1e-5);
      EXPECT_NEAR(mean([&](const auto& m) { return m.importance[l][h]; }), scores.importance[l][h],
                  1e-4 * scores.importance[l][h]);
      EXPECT_NEAR(mean([&](const auto& m) { return m.cosine[l][0][h]; }),
                  structure.cosine->pairs[l][0][h], 1e-5);
    }
  }
  EXPECT_EQ(each[0].positions_per_dimension, 5) << "40 tokens, heads of 8";
  EXPECT_EQ(each[0].sparsity.size(), 2U);
  EXPECT_EQ(each[0].negative_mass[1][3], 0) << "softmax weights have no negative part";
  EXPECT_FALSE(each[0].entropy_of_magnitudes);
  EXPECT_TRUE(each[0].removed_below_zero.empty());
}

evaluate::HeadMeasures with_adapter(const std::filesystem::path& model,
                                    const model::DexOptions& options, double lambda_scale = 1) {
  const auto folder = model / "adapter";
  std::filesystem::remove_all(folder);
  auto adapter = testing::tiny_adapter(options, 7, model::base_weights_sha256(model), 2.0);
  for (auto& layer : adapter.adaptation.layers) {
    if (layer.branch.gate.defined()) layer.branch.gate = at::full({4}, 1.5F);
  }
  model::write_adapter(folder, adapter);
  HeadsModel heads(model, 1);
  return heads.measure({folder, lambda_scale}, ids(40, 1),
                       {.entropy = true, .sparsity = true, .skip_rows = 4}, {});
}

// Heads 0 and 3 of the first layer have a branch, 1 and 2 of the second.
TEST(HeadsModelTest, ShowsWhatABranchMakesNegativeOrTakesAway) {
  const support::TemporaryDirectory dir;
  train::testing::write_tiny_model(dir.path());
  const auto options = testing::tiny_options();
  const auto uniform = with_adapter(dir.path(), options[testing::kUniformMap]);
  EXPECT_TRUE(uniform.entropy_of_magnitudes);
  EXPECT_GT(uniform.negative_share[0][0], 0);
  EXPECT_GT(uniform.negative_mass[0][3], 0);
  EXPECT_EQ(uniform.negative_mass[1][0], 0);
  EXPECT_TRUE(uniform.removed_below_half.empty());
  const auto half = with_adapter(dir.path(), options[testing::kUniformMap], 0.5);
  EXPECT_LT(half.negative_mass[0][0], uniform.negative_mass[0][0]) << "λ of M is scaled";
  const auto none = with_adapter(dir.path(), options[testing::kUniformMap], 0);
  EXPECT_FALSE(none.entropy_of_magnitudes);
  EXPECT_EQ(none.negative_mass[0][0], 0);

  const auto paper = with_adapter(dir.path(), options[0]);
  EXPECT_FALSE(paper.entropy_of_magnitudes);
  EXPECT_FALSE(paper.removed_by_layer);
  ASSERT_EQ(paper.removed_below_half.size(), 2U);
  EXPECT_GT(paper.removed_below_half[0][3], 0);
  EXPECT_TRUE(std::isnan(paper.removed_below_zero[0][1])) << "no branch acts on it";
  EXPECT_EQ(with_adapter(dir.path(), options[0], 0).removed_below_half[0][3], 0);

  model::DexOptions dense = options[0];
  dense.projection = model::Projection::kDense;
  const auto whole = with_adapter(dir.path(), dense);
  EXPECT_TRUE(whole.removed_by_layer);
  ASSERT_EQ(whole.removed_below_half[1].size(), 1U);
  EXPECT_GT(whole.removed_below_half[1][0], 0);
}

TEST(HeadsModelTest, ScalesLambda) {
  const support::TemporaryDirectory dir;
  train::testing::write_tiny_model(dir / "model");
  const auto adapter = testing::tiny_adapter(testing::tiny_options()[testing::kDexOnly], 50,
                                             model::base_weights_sha256(dir / "model"));
  model::write_adapter(dir / "adapter", adapter);
  HeadsModel heads(dir / "model", 1);
  const auto importance = [&](const HeadsModel::Whose& whose) {
    return heads.measure(whose, ids(40, 1), {.importance = true}, {}).importance;
  };
  const auto base = importance({}), zero = importance({dir / "adapter", 0}),
             half = importance({dir / "adapter", 0.5}), one = importance({dir / "adapter", 1});
  for (size_t l = 0; l < 2; ++l) {
    for (size_t h = 0; h < 4; ++h) EXPECT_NEAR(zero[l][h], base[l][h], 1e-5 * base[l][h]);
  }
  EXPECT_NE(half, base);
  EXPECT_NE(half, one);
}

TEST(HeadsModelTest, LeavesLibTorchsThreadsAsTheyWereAndStops) {
  const support::TemporaryDirectory dir;
  train::testing::write_tiny_model(dir.path());
  at::set_num_threads(1);
  HeadsModel heads(dir.path(), 2);
  const auto row = ids(40, 1);
  evaluate::HeadQuestion normalized = {.entropy = true, .skip_rows = 1, .normalized = true};
  for (const auto& layer : heads.measure({}, row, normalized, {}).entropy) {
    for (const double score : layer) EXPECT_LE(score, 1) << "H/ln(i+1)";
  }
  EXPECT_EQ(at::get_num_threads(), 1);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(heads.measure({}, row, kAll, stop.get_token()), evaluate::Stopped);
}

}  // namespace
}  // namespace dex::serve
