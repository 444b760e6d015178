// Head scores of SmolLM2-135M-Instruct itself against transformers' attention maps and gradients
// (tests/data/golden). The model is put in place by deploy/setup.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/paths.h"
#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/model/weights.h"

namespace dex::evaluate {
namespace {

class SmolLm2HeadsTest : public ::testing::Test {
 protected:
  SmolLm2HeadsTest() {
    at::set_num_threads(1);
    const auto source = support::source_dir() / "tests/data/golden/heads.json";
    std::ifstream file(source);
    golden_ = nlohmann::json::parse(file);
    const auto dir = support::deps_dir() / "models/smollm2-135m-instruct";
    EXPECT_TRUE(std::filesystem::exists(dir / "config.json"))
        << dir << " is missing: run deploy/setup/all";
    EXPECT_EQ(golden_["source"]["weights_sha256"], model::base_weights_sha256(dir));
    config_ = model::load_config(dir);
    model_ = dir;
    rows_ = golden_["sequences"].get<std::vector<std::vector<int32_t>>>();
    for (const auto& row : rows_) ones_.emplace_back(row.size(), 1.0f);
    for (size_t i = 0; i < rows_.size(); ++i) documents_.push_back({rows_[i], ones_[i]});
  }

  static double norm(const std::vector<double>& values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
  }

  [[nodiscard]] model::Weights weights(at::ScalarType type) const {
    return model::load_weights(model_, config_, {.dtype = type});
  }
  HeadScores scores(const model::Weights& weights, bool exact) const {
    HeadScoreOptions options;
    options.skip_rows = golden_["i_min"];
    options.exact = exact;
    kernels::LinearCrossEntropy cross_entropy;
    return measure_heads(model::Llama(config_, weights), {}, documents_, options, cross_entropy);
  }

  nlohmann::json golden_;
  std::filesystem::path model_;
  model::Config config_;
  std::vector<std::vector<int32_t>> rows_;
  std::vector<std::vector<float>> ones_;
  std::vector<Document> documents_;
};

// What `dex-engine heads --dtype f32` prints: weights in fp32, passes in fp64, each head relative
// to its own value. The angles of RoPE stay fp32 on both sides; a cosine that is an ulp off moves
// an importance by 4e-6 of itself at most.
TEST_F(SmolLm2HeadsTest, EntropyAndImportanceAreThoseOfTransformersInFp64) {
  const auto found = scores(weights(at::kFloat), /*exact=*/true);
  const auto entropy = golden_["entropy"].get<HeadTable>(),
             importance = golden_["importance"].get<HeadTable>();
  for (size_t l = 0; l < entropy.size(); ++l) {
    for (size_t h = 0; h < entropy[l].size(); ++h) {
      EXPECT_NEAR(found.entropy_nats[l][h], entropy[l][h], 2e-5 * entropy[l][h]) << l << " " << h;
      EXPECT_NEAR(found.importance[l][h], importance[l][h], 2e-5 * importance[l][h])
          << l << " " << h;
    }
  }
}

// How heads are chosen: in fp32.
TEST_F(SmolLm2HeadsTest, EntropyAndImportanceInFp32AreThoseToItsRounding) {
  const auto found = scores(weights(at::kFloat), /*exact=*/false);
  const auto entropy = golden_["entropy"].get<HeadTable>(),
             importance = golden_["importance"].get<HeadTable>();
  for (size_t l = 0; l < entropy.size(); ++l) {
    for (size_t h = 0; h < entropy[l].size(); ++h) {
      EXPECT_NEAR(found.entropy_nats[l][h], entropy[l][h], 1e-4 * entropy[l][h]) << l << " " << h;
      // Of the layer's norm, the unit in which heads are compared: a head's own importance is the
      // absolute value of a sum whose terms nearly cancel. transformers in fp32 lies 2e-4 of the
      // norm, 2e-3 of a small head's value, from its fp64 self, and so may we (AVX2: one head
      // at 1.07e-4).
      EXPECT_NEAR(found.importance[l][h], importance[l][h], 2e-4 * norm(importance[l]))
          << l << " " << h;
    }
  }
}

// Softmax weights: no map is negative, similar heads exist, none is another's opposite.
TEST_F(SmolLm2HeadsTest, StructureIsThatOfSoftmaxMaps) {
  const model::Weights in_fp32 = weights(at::kFloat);
  const model::Llama llama(config_, in_fp32);
  const auto found = measure_head_structure(llama, {}, documents_, {});
  for (int64_t l = 0; l < config_.layers; ++l) {
    const auto layer = static_cast<size_t>(l);
    EXPECT_GT(found.cosine->mean[layer], 0);
    EXPECT_LT(found.cosine->mean[layer], 1);
    EXPECT_GT(found.cka->mean[layer], 0);
    EXPECT_LE(found.cka->mean[layer], 1);
    for (int64_t h = 0; h < config_.heads; ++h) {
      const double share = found.sparsity->sparsity[layer][static_cast<size_t>(h)];
      EXPECT_GE(share, 0);
      EXPECT_LT(share, 1);
      EXPECT_EQ(found.sparsity->negative_mass[layer][static_cast<size_t>(h)], 0);
    }
  }
}

}  // namespace
}  // namespace dex::evaluate
