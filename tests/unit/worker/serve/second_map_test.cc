// Models of method diff through the engine, against the trainer's forward pass: whole prompts, and
// decoding from the cache, whose second key heads V1 alone has.
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/serve/one_pass.h"

namespace dex::serve {
namespace {

using dex::testing::SecondMapCase;

class SecondMapServingTest : public ::testing::TestWithParam<SecondMapCase> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  SecondMapServingTest() {
    dex::testing::write_family(dir / "base", GetParam().family,
                               dex::testing::family_tensors(golden));
    const auto made = dex::testing::second_map_model(dir / "base", GetParam());
    dex::testing::write_second_map(dir / "base", dir / "model", GetParam(), made);
    model::DexOptions options;
    options.form = model::Form::kNone;
    options.train = model::Train::kKvoOnly;
    trained = model::initial_adaptation(options, made.config, made.weights, {}, 1);
    dex::testing::move_all(trained, 0.1);
    pass = std::make_unique<testing::OnePass>(load_serving_model(dir / "model", Dtype::kF32),
                                              made.weights);
  }

  support::TemporaryDirectory dir;
  model::Safetensors golden = dex::testing::family_golden(GetParam().family);
  std::unique_ptr<testing::OnePass> pass;
  model::Adaptation trained;
};

TEST_P(SecondMapServingTest, PrefillAndDecodeAreOneForwardPass) {
  const auto document = dex::testing::documents_of(golden)[0];
  for (const model::Adaptation* adaptation : {static_cast<model::Adaptation*>(nullptr), &trained})
    pass->expect_prefill_and_decode({document.begin(), document.begin() + 21}, adaptation);
}

INSTANTIATE_TEST_SUITE_P(Cases, SecondMapServingTest,
                         ::testing::ValuesIn(dex::testing::second_map_cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace dex::serve
