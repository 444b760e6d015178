// V1 of method diff (method.md §8.4): the attention alone against fp64 values with both maps
// written out, where the second ones have numbers of their own
// (tests/data/model/make_differential.py), and its start in a whole model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "worker/kernels/causal_attention.h"
#include "worker/kernels/rope.h"
#include "worker/model/differential_attention.h"
#include "worker/model/llama.h"
#include "worker/model/second_map.h"

namespace dex::model {
namespace {

class SecondMapV1Test : public ::testing::Test {
 protected:
  [[nodiscard]] at::Tensor value(const std::string& name) const {
    return golden_.tensor("second_v1." + name);
  }
  [[nodiscard]] at::Tensor heads_of(const std::string& name) const {  // 6 wide each
    return value("x").mm(value(name).t()).view({value("x").size(0), -1, 6});
  }
  [[nodiscard]] at::Tensor turned(const std::string& name) const {
    return kernels::rope_plain(heads_of(name), value("cos"), value("sin"));
  }
  static at::Tensor mixed(const std::vector<at::Tensor>& in) {  // q, k, v, share
    return second_map_v1(in[0], in[1], in[2], in[3],
                         [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                           return kernels::causal_attention(q, k, v);
                         });
  }

  Safetensors golden_ = Safetensors::open(
      (support::source_dir() / "tests/data/model/differential.safetensors").string(),
      Safetensors::Access::kRead);
  std::vector<at::Tensor> inputs_{turned("q"), turned("k"), heads_of("v"), value("share")};
};

TEST_F(SecondMapV1Test, SubtractsASecondMapOfItsOwnKeys) {
  const at::Tensor o = mixed(inputs_);
  testing::expect_close(o.flatten(1).mm(value("o").t()), value("y"), 1e-10);
  // The second keys matter: with the first ones in their place the result is another.
  std::vector<at::Tensor> other = inputs_;
  const at::Tensor first = inputs_[1].unflatten(1, {-1, 2}).select(2, 0);
  other[1] = at::stack({first, first}, 2).flatten(1, 2);
  EXPECT_GT((mixed(other) - o).abs().max().item<double>(), 1e-2);
}

TEST_F(SecondMapV1Test, GradientsAreThoseOfFiniteDifferences) {
  const auto found = testing::gradients(mixed, inputs_);
  for (size_t i = 0; i < inputs_.size(); ++i)
    testing::expect_close(found[i], testing::numeric_gradient(mixed, inputs_, i), 1e-6);
}

// With W_Q2 = 0 the second map is the mean over the past, which form uniform_map computes too: its
// λ·g is the layer's mix·λ here.
TEST(SecondMapV1StartTest, ZeroIsTheGatedUniformMap) {
  constexpr double kMix = 0.8, kLambda = 0.5;
  for (const char* family : {"llama3", "llama_linear", "qwen2"}) {
    support::TemporaryDirectory dir;
    const Safetensors golden = testing::family_golden(family);
    testing::write_family(dir / "base", family, testing::family_tensors(golden));
    const Config config = load_config(dir / "base");
    const Weights weights = load_weights(dir / "base", config, {at::kFloat});
    const Batch batch = pack(testing::documents_of(golden));
    const SecondMapOptions zero{SecondMapOptions::Version::kV1, SecondMapOptions::Init::kZero};
    const Config changed = with_second_map(config, zero.version);
    const Weights start = add_second_map(weights, config, zero, 3);

    DexOptions options;
    options.form = Form::kUniformMap;
    options.lambda = {.schedule = Schedule::kConstant, .value = kLambda};
    std::vector<int64_t> all;
    for (int64_t head = 0; head < config.heads; ++head) all.push_back(head);
    Adaptation uniform = initial_adaptation(
        options, config, weights,
        std::vector<std::vector<int64_t>>(static_cast<size_t>(config.layers), all), 1);
    for (size_t l = 0; l < start.layers.size(); ++l) {
      const LayerWeights& w = start.layers[l];
      const double lambda =
          differential_lambda({w.lambda_q1, w.lambda_k1, w.lambda_q2, w.lambda_k2},
                              lambda_init(static_cast<int64_t>(l)))
              .item<double>();
      uniform.layers[l].branch.gate = at::full({config.heads}, kMix * lambda / kLambda, at::kFloat);
    }
    Adaptation at_mix;
    at_mix.mix = kMix;
    const at::Tensor found = Llama(changed, start).logits(batch, at_mix);
    const at::Tensor want = Llama(config, weights).logits(batch, uniform);
    EXPECT_LT((found - want).abs().max().item<double>(), 1e-4) << family;
    EXPECT_GT((want - golden.tensor("logits")).abs().max().item<double>(), 1e-2) << family;
  }
}

}  // namespace
}  // namespace dex::model
