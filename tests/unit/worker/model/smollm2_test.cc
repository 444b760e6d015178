// SmolLM2-135M-Instruct itself: against transformers' log-probabilities (tests/data/golden), and
// folded against unfolded. The model is put in place by deploy/setup.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

class SmolLm2Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    dir = support::deps_dir() / "models/smollm2-135m-instruct";
    ASSERT_TRUE(std::filesystem::exists(dir / "config.json"))
        << dir << " is missing: run deploy/setup/all";
    config = load_config(dir);
    weights = load_weights(dir, config, {at::kFloat, true});
  }
  static void TearDownTestSuite() { weights = {}; }

  static std::filesystem::path dir;
  static Config config;
  static Weights weights;
  Llama llama{config, weights};
  const std::vector<int64_t> tokens{1604,  3987, 46477, 24,  94,  727,   472,   1620,
                                    25671, 260,  304,   29,  373, 24681, 46477, 1230,
                                    7996,  198,  3725,  198, 198, 1348,  6230,  2925};
};

std::filesystem::path SmolLm2Test::dir;
Config SmolLm2Test::config;
Weights SmolLm2Test::weights;

TEST_F(SmolLm2Test, LogProbabilitiesAreThoseOfTransformers) {
  std::ifstream file(support::source_dir() / "tests/data/golden/model.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["source"]["weights_sha256"], base_weights_sha256(dir));
  at::NoGradGuard no_grad;
  for (const auto& [name, entry] : golden["cases"].items()) {
    std::vector<int64_t> ids = entry["prompt"];
    const std::vector<int64_t> greedy = entry["greedy"];
    ids.insert(ids.end(), greedy.begin(), greedy.end());
    const std::vector<double> expected =
        entry["token_logprobs"];  // of each token from the second on
    ASSERT_LE(expected.size() + 1, ids.size()) << name;
    ids.resize(expected.size() + 1);
    const at::Tensor log_p = at::log_softmax(llama.logits(pack({ids})).to(at::kDouble), 1);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(log_p[static_cast<int64_t>(i)][ids[i + 1]].item<double>(), expected[i], 2e-3)
          << name << " " << i;
    }
    // Greedy decoding would have gone the same way.
    const size_t prompt = entry["prompt"].size();
    for (size_t i = prompt; i < ids.size(); ++i) {
      EXPECT_EQ(log_p[static_cast<int64_t>(i) - 1].argmax().item<int64_t>(), ids[i])
          << name << " " << i;
    }
  }
}

// A branch as large as a trained one: λ of the schedules' middle, w_d half the size of its `linear`
// start.
Adaptation random_adaptation(const DexOptions& options, const Config& config,
                             const Weights& weights) {
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(config.layers), {1, 3, 5, 7});
  Adaptation adapted = initial_adaptation(options, config, weights, heads, 3);
  const double half = 0.5 / std::sqrt(static_cast<double>(projected_width(options, config)));
  uint64_t stream = 900;
  for (const Trainable& entry : trainables(adapted)) {
    const double size = entry.group == Group::kBase     ? 1e-3
                        : entry.group == Group::kBranch ? half
                                                        : 0.3;
    entry.tensor->add_(testing::random_tensor(entry.tensor->sizes(), ++stream) * size);
  }
  set_lambda(adapted, 40);
  return adapted;
}

// method.md §2.4 and §10 item 8: 1e-4 in fp32 on a real model, in log-probabilities and logits.
TEST_F(SmolLm2Test, FoldedIsTheBranch) {
  at::NoGradGuard no_grad;
  for (const DexOptions& options : testing::foldable_options()) {
    if (options.projection == Projection::kBottleneck && options.form == Form::kPaper)
      continue;  // no preset has it
    const Adaptation adapted = random_adaptation(options, config, weights);
    const Batch batch = pack({tokens});
    const at::Tensor branch = llama.logits(batch, adapted);
    const Weights inside = folded_weights(weights, adapted);
    const at::Tensor folded = Llama(config, inside).logits(batch);
    const Certificate c = certificate(folded, branch);
    EXPECT_LE(c.largest, 1e-4) << testing::label(options);
    EXPECT_GT((branch - llama.logits(batch)).abs().max().item<double>(), 0.1)
        << "a branch that does nothing";
  }
}

// method.md §10 item 1 on the real model.
TEST_F(SmolLm2Test, TheStartIsTheBaseBitForBit) {
  at::NoGradGuard no_grad;
  const Batch batch = pack({tokens});
  DexOptions options;
  options.lambda.anneal_steps = 10;
  options.w_d_init = BranchInit::kLinear;
  const std::vector<std::vector<int64_t>> heads(static_cast<size_t>(config.layers), {0, 2, 4, 6});
  const Adaptation start = initial_adaptation(options, config, weights, heads, 3);
  EXPECT_TRUE(llama.logits(batch).equal(llama.logits(batch, start)));
}

}  // namespace
}  // namespace dex::model
