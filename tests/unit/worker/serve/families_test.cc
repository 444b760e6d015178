// Every family of base models through the engine: transformers' values for whole prompts
// (tests/data/model/make_families.py), the trainer's forward pass for everything else.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/serve/collector.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"
#include "worker/serve/engine.h"

namespace dex::serve {
namespace {

using testing::Collector;
using testing::greedy;
using testing::scoring;

class FamilyServingTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  FamilyServingTest() {
    dex::testing::write_family(dir.path(), GetParam(), dex::testing::family_tensors(golden));
    model = load_serving_model(dir.path(), Dtype::kF32);
    weights = model::load_weights(dir.path(), model->config, {at::kFloat});
    branch = dex::testing::family_adaptation(golden, model->config, weights);
    trained = branch;
    dex::testing::move_all(trained, 0.1);
  }

  std::shared_ptr<Collector> ask(Request request, const model::Adaptation* adaptation,
                                 int32_t chunk_tokens = 256) {
    std::shared_ptr<const ServingAdapter> adapter;
    if (adaptation != nullptr) {
      adapter =
          make_serving_adapter(model::make_adapter(*adaptation), "a", std::string(64, 'a'), *model);
    }
    Engine engine(model, nullptr, {.threads = 1, .chunk_tokens = chunk_tokens}, clock);
    auto collector = std::make_shared<Collector>();
    const auto status = engine.submit(1, std::move(request), adapter, collector);
    EXPECT_TRUE(status.ok()) << status.to_string();
    engine.run_until_idle();
    EXPECT_TRUE(collector->outcome.error.ok()) << collector->outcome.error.to_string();
    return collector;
  }

  void expect_scores(const at::Tensor& logits, const std::vector<int32_t>& tokens,
                     const Collector& got) {
    const at::Tensor want = at::log_softmax(logits.to(at::kDouble), 1);
    ASSERT_EQ(got.logprobs.size(), tokens.size());
    for (size_t i = 1; i < tokens.size(); ++i) {
      EXPECT_NEAR(*got.logprobs[i].logprob,
                  want[static_cast<int64_t>(i) - 1][tokens[i]].item<double>(), 1e-4)
          << "token " << i;
    }
  }

  at::Tensor reference(const std::vector<int32_t>& tokens, const model::Adaptation& adaptation) {
    const at::NoGradGuard no_grad;
    return model::Llama(model->config, weights)
        .logits(model::pack({{tokens.begin(), tokens.end()}}), adaptation);
  }

  support::TemporaryDirectory dir;
  support::ManualClock clock;
  model::Safetensors golden = dex::testing::family_golden(GetParam());
  std::shared_ptr<const ServingModel> model;
  model::Weights weights;
  model::Adaptation branch;   // of the golden values
  model::Adaptation trained;  // every trained tensor moved, biases too
};

TEST_P(FamilyServingTest, ScoresAsTransformers) {
  const auto documents = dex::testing::documents_of(golden);
  int64_t row = 0;
  for (const auto& document : documents) {
    const std::vector<int32_t> tokens(document.begin(), document.end());
    const auto rows = [&](const char* key) {
      return golden.tensor(key).narrow(0, row, static_cast<int64_t>(tokens.size()));
    };
    expect_scores(rows("logits"), tokens, *ask(scoring(tokens), nullptr));
    if (dex::testing::has_branch_values(golden))
      expect_scores(rows("dex.logits"), tokens, *ask(scoring(tokens), &branch));
    row += static_cast<int64_t>(tokens.size());
  }
}

TEST_P(FamilyServingTest, PrefillAndDecodeAreOneForwardPass) {
  const auto document = dex::testing::documents_of(golden)[0];
  for (const model::Adaptation* adaptation : {static_cast<model::Adaptation*>(nullptr), &trained}) {
    std::vector<int32_t> all(document.begin(), document.begin() + 21);
    const auto got = ask(greedy(all, 40), adaptation);
    ASSERT_EQ(got->tokens.size(), 40U);
    all.insert(all.end(), got->tokens.begin(), got->tokens.end());
    const at::Tensor logits = reference(all, adaptation ? *adaptation : model::Adaptation());
    const at::Tensor want = at::log_softmax(logits.to(at::kDouble), 1);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(*got->logprobs[i].logprob, want[20 + i].max().item<double>(), 1e-4) << i;
      EXPECT_NEAR(want[20 + i][got->tokens[i]].item<double>(), want[20 + i].max().item<double>(),
                  1e-4)
          << i;
    }
    // The same rows in chunks of other sizes: to the bit.
    const auto whole = ask(scoring(all), adaptation), parts = ask(scoring(all), adaptation, 32);
    expect_scores(logits, all, *whole);
    EXPECT_EQ(whole->values(), parts->values());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyServingTest,
                         ::testing::ValuesIn(dex::testing::family_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace dex::serve
