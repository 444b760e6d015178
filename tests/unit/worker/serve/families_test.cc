// Every family of base models through the engine: transformers' values for whole prompts
// (tests/data/model/make_families.py), the trainer's forward pass for everything else.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/serve/one_pass.h"

namespace dex::serve {
namespace {

class FamilyServingTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  FamilyServingTest() {
    dex::testing::write_family(dir.path(), GetParam(), dex::testing::family_tensors(golden));
    const auto served = load_serving_model(dir.path(), Dtype::kF32);
    const auto weights = model::load_weights(dir.path(), served->config, {at::kFloat});
    branch = dex::testing::family_adaptation(golden, served->config, weights);
    trained = branch;
    dex::testing::move_all(trained, 0.1);
    pass = std::make_unique<testing::OnePass>(served, weights);
  }

  support::TemporaryDirectory dir;
  model::Safetensors golden = dex::testing::family_golden(GetParam());
  std::unique_ptr<testing::OnePass> pass;
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
    const auto expect = [&](const char* key, const model::Adaptation* adaptation) {
      testing::OnePass::expect_scores(rows(key), tokens,
                                      *pass->ask(testing::scoring(tokens), adaptation));
    };
    expect("logits", nullptr);
    if (dex::testing::has_branch_values(golden)) expect("dex.logits", &branch);
    row += static_cast<int64_t>(tokens.size());
  }
}

TEST_P(FamilyServingTest, PrefillAndDecodeAreOneForwardPass) {
  const auto document = dex::testing::documents_of(golden)[0];
  for (const model::Adaptation* adaptation : {static_cast<model::Adaptation*>(nullptr), &trained})
    pass->expect_prefill_and_decode({document.begin(), document.begin() + 21}, adaptation);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyServingTest,
                         ::testing::ValuesIn(dex::testing::family_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace dex::serve
