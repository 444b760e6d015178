// Adapters on every kind of attention through the engine, against the trainer's forward pass: pairs
// of DiffLlama, second maps of method diff, windows, scaled RoPE, biases and norms of heads. LoRA
// and bottleneck adapters go on all of them; branches that keep state between tokens or can't be
// folded on those that a branch has a meaning on. What the tiny Llama shows for each option is
// engine_test's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/serve/one_pass.h"
#include "tests/unit/worker/serve/tiny_adapters.h"

namespace dex::serve {
namespace {

using Version = model::SecondMapOptions::Version;

struct VariantCase {
  std::string family;
  std::optional<Version> second_map;  // made of the family by method diff
  std::string label;
  int options = 0;  // in tiny_options()
};

std::ostream& operator<<(std::ostream& out, const VariantCase& which) {
  return out << which.label;
}

std::vector<VariantCase> variant_cases() {
  const std::vector<std::pair<std::string, std::optional<Version>>> all = {
      {"diffllama", {}},
      {"diffllama_biased", {}},
      {"llama3", Version::kV1},
      {"mistral_window", Version::kV1},
      {"qwen2", Version::kV2},
      {"qwen3_biased", Version::kV2},
      {"llama3", {}},
      {"llama_linear", {}},
      {"mistral_window", {}},
      {"qwen2", {}},
      {"qwen3", {}},
      {"qwen3_biased", {}}};
  const std::vector<std::pair<std::string, int>> everywhere = {
      {"lora", testing::kAllLora}, {"adapter", testing::kBottleneckAdapter}};
  const std::vector<std::pair<std::string, int>> branches = {
      {"prefix_mean", testing::kPrefixMean},
      {"uniform_map", testing::kUniformMap},
      {"silu", testing::kSilu},
      {"lora_prefix_mean", testing::kLoraPrefix}};
  std::vector<VariantCase> cases;
  for (const auto& [family, second_map] : all) {
    const std::string kind =
        family + (second_map ? "_" + std::string(model::name(*second_map)) : std::string());
    for (const auto& [name, options] : everywhere)
      cases.push_back({family, second_map, kind + "_" + name, options});
    if (second_map || family.starts_with("diffllama")) continue;
    for (const auto& [name, options] : branches)
      cases.push_back({family, second_map, kind + "_" + name, options});
  }
  return cases;
}

class AdapterVariantTest : public ::testing::TestWithParam<VariantCase> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  AdapterVariantTest() {
    const VariantCase& which = GetParam();
    dex::testing::write_family(dir / "base", which.family, dex::testing::family_tensors(golden));
    std::filesystem::path folder = dir / "base";
    if (which.second_map) {
      const dex::testing::SecondMapCase second = {which.family, *which.second_map};
      folder = dir / "model";
      dex::testing::write_second_map(dir / "base", folder, second,
                                     dex::testing::second_map_model(dir / "base", second));
    }
    const auto served = load_serving_model(folder, Dtype::kF32);
    const auto weights = model::load_weights(folder, served->config, {at::kFloat});
    std::vector<std::vector<int64_t>> heads(weights.layers.size(),
                                            std::vector<int64_t>{0, served->config.heads - 1});
    heads[1] = {1};
    adapted = model::initial_adaptation(testing::tiny_options().at(which.options), served->config,
                                        weights, heads, 9);
    dex::testing::move_all(adapted, 0.2);
    model::set_lambda(adapted, 10);
    pass = std::make_unique<testing::OnePass>(served, weights);
    const auto document = dex::testing::documents_of(golden)[0];
    prompt = {document.begin(), document.begin() + 21};
  }

  support::TemporaryDirectory dir;
  model::Safetensors golden = dex::testing::family_golden(GetParam().family);
  model::Adaptation adapted;
  std::unique_ptr<testing::OnePass> pass;
  std::vector<int32_t> prompt;
};

TEST_P(AdapterVariantTest, PrefillAndDecodeAreOneForwardPass) {
  const at::Tensor base = pass->logits(prompt, nullptr);
  ASSERT_GT((pass->logits(prompt, &adapted) - base).abs().max().item<double>(), 0.01)
      << "the adapter does nothing here";
  pass->expect_prefill_and_decode(prompt, &adapted);
}

// Rows of the base and of the adapter in one batch: each as if it were alone, to the bit.
TEST_P(AdapterVariantTest, AMixedBatchIsEachAlone) {
  const auto adapter = pass->adapter(&adapted);
  const std::vector<int32_t> other(prompt.rbegin(), prompt.rend());
  std::vector<std::pair<Request, std::shared_ptr<const ServingAdapter>>> requests;
  for (const auto& tokens : {prompt, other}) {
    requests.emplace_back(testing::greedy(tokens, 6), adapter);
    requests.emplace_back(testing::greedy(tokens, 9), nullptr);
  }
  const auto together = pass->ask_all(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = pass->ask_all({requests[i]}).front();
    EXPECT_EQ(together[i]->tokens, alone->tokens) << i;
    EXPECT_EQ(together[i]->values(), alone->values()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterVariantTest, ::testing::ValuesIn(variant_cases()),
                         [](const auto& info) { return info.param.label; });

}  // namespace
}  // namespace dex::serve
