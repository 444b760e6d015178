// The forms and projections that golden_test.cc does not have, against transformers with a branch
// of the script's own (tests/data/model/make_forms_golden.py): logits, and the gradient of every
// tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "tests/support/paths.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/llama.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

using testing::expect_close;

struct Case {
  const char* name;
  Form form;
  Sign sign;
  Projection projection;
  BottleneckScope scope = BottleneckScope::kShared;
  Activation activation = Activation::kNone;
  double width_ratio = 1.5;
};

class GoldenFormsTest : public ::testing::TestWithParam<Case> {
 protected:
  std::filesystem::path dir = support::source_dir() / "tests/data/model/tied";
  Config config = load_config(dir);
  Weights weights = load_weights(dir, config, {at::kFloat, true});
  Llama llama{config, weights};
  Safetensors golden = Safetensors::open(dir / "forms.safetensors", Safetensors::Access::kRead);
  Batch batch = pack({{5, 17, 3, 90, 41, 8, 8}, {60, 2, 33, 71, 12}});  // make_golden.py's

  // The case's branches in place of the start's.
  Adaptation adaptation() {
    const Case& c = GetParam();
    DexOptions options;
    options.form = c.form;
    options.sign = c.sign;
    options.projection = c.projection;
    options.bottleneck_scope = c.scope;
    options.bottleneck_activation = c.activation;
    options.width_ratio = c.width_ratio;
    options.lambda.schedule = Schedule::kLearned;
    Adaptation a = initial_adaptation(options, config, weights, {{1, 3}, {0}, {0, 1, 2, 3}}, 1);
    for (size_t i = 0; i < a.layers.size(); ++i) {
      const std::string here = std::string(c.name) + "." + std::to_string(i) + ".";
      EXPECT_TRUE(a.layers[i].mask.equal(golden.tensor(here + "mask")));
      for (const auto& [key, shape] : branch_shapes(options, config)) {
        at::Tensor& field = branch_field(a.layers[i].branch, key);
        field = golden.tensor(here + (key == "lambda_learn" ? "strength" : key)).clone();
        EXPECT_EQ(field.sizes(), at::IntArrayRef(shape)) << here << key;
      }
    }
    return a;
  }
};

TEST_P(GoldenFormsTest, GivesTheSameLogitsAndGradients) {
  const std::string name = GetParam().name;
  Adaptation adapted = adaptation();
  for (const auto& entry : trainables(adapted)) entry.tensor->requires_grad_();
  const at::Tensor logits = llama.logits(batch, adapted);
  EXPECT_LT((logits - golden.tensor(name + ".logits")).abs().max().item<double>(), 2e-5);
  (logits * golden.tensor("coefficients")).sum().backward();
  const auto expect_slope = [&](const std::string& key, const std::string& directions,
                                const std::function<at::Tensor(const LayerAdaptation&)>& tensor) {
    double found = 0;
    for (size_t i = 0; i < adapted.layers.size(); ++i) {
      const at::Tensor along = golden.tensor(directions + std::to_string(i) + ".direction." + key);
      found += (tensor(adapted.layers[i]).grad() * along).sum().item<double>();
    }
    const auto expected = golden.tensor(name + ".slope." + key).item<double>();
    EXPECT_NEAR(found, expected, 1e-4 * std::abs(expected) + 1e-3) << key;
  };
  expect_slope("v_proj", "", [](const auto& layer) { return layer.v; });
  expect_slope("o_proj", "", [](const auto& layer) { return layer.o; });
  for (const auto& [key, shape] : branch_shapes(adapted.options, config)) {
    expect_slope(key == "lambda_learn" ? "strength" : key, name + ".",
                 [&](const auto& layer) { return branch_field(layer.branch, key); });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenFormsTest,
    ::testing::Values(
        Case{"prefix_mean_per_head", Form::kPrefixMean, Sign::kPlus, Projection::kPerHead},
        Case{"prefix_mean_dense_gelu", Form::kPrefixMean, Sign::kPlus, Projection::kBottleneck,
             BottleneckScope::kDense, Activation::kGelu, 0.375},
        Case{"uniform_map", Form::kUniformMap, Sign::kMinus, Projection::kShared},
        Case{"paper_dense", Form::kPaper, Sign::kPlus, Projection::kDense},
        Case{"head_mean_per_head_silu", Form::kHeadMean, Sign::kPlus, Projection::kBottleneck,
             BottleneckScope::kPerHead, Activation::kSilu, 1.5},
        Case{"paper_shared_silu", Form::kPaper, Sign::kMinus, Projection::kBottleneck,
             BottleneckScope::kShared, Activation::kSilu, 0.5}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dex::model
