// Models of method diff through the engine, against the trainer's forward pass: whole prompts, and
// decoding from the cache, whose second key heads V1 alone has.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/serve/collector.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"
#include "worker/serve/engine.h"

namespace dex::serve {
namespace {

using dex::testing::SecondMapCase;

class SecondMapServingTest : public ::testing::TestWithParam<SecondMapCase> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  SecondMapServingTest() {
    dex::testing::write_family(dir / "base", GetParam().family,
                               dex::testing::family_tensors(golden));
    made = dex::testing::second_map_model(dir / "base", GetParam());
    dex::testing::write_second_map(dir / "base", dir / "model", GetParam(), made);
    model = load_serving_model(dir / "model", Dtype::kF32);
    model::DexOptions options;
    options.form = model::Form::kNone;
    options.train = model::Train::kKvoOnly;
    trained = model::initial_adaptation(options, made.config, made.weights, {}, 1);
    dex::testing::move_all(trained, 0.1);
  }

  std::shared_ptr<testing::Collector> ask(Request request, const model::Adaptation* adaptation,
                                          int32_t chunk_tokens) {
    std::shared_ptr<const ServingAdapter> adapter;
    if (adaptation != nullptr) {
      adapter =
          make_serving_adapter(model::make_adapter(*adaptation), "a", std::string(64, 'a'), *model);
    }
    Engine engine(model, nullptr, {.threads = 2, .chunk_tokens = chunk_tokens}, clock);
    auto collector = std::make_shared<testing::Collector>();
    const auto status = engine.submit(1, std::move(request), adapter, collector);
    EXPECT_TRUE(status.ok()) << status.to_string();
    engine.run_until_idle();
    EXPECT_TRUE(collector->outcome.error.ok()) << collector->outcome.error.to_string();
    return collector;
  }

  support::TemporaryDirectory dir;
  support::ManualClock clock;
  model::Safetensors golden = dex::testing::family_golden(GetParam().family);
  dex::testing::SecondMapModel made;
  std::shared_ptr<const ServingModel> model;
  model::Adaptation trained;
};

TEST_P(SecondMapServingTest, PrefillAndDecodeAreOneForwardPass) {
  const at::NoGradGuard no_grad;
  const auto document = dex::testing::documents_of(golden)[0];
  for (const model::Adaptation* adaptation : {static_cast<model::Adaptation*>(nullptr), &trained}) {
    std::vector<int32_t> all(document.begin(), document.begin() + 21);
    const auto got = ask(testing::greedy(all, 40), adaptation, 256);
    ASSERT_EQ(got->tokens.size(), 40U);
    all.insert(all.end(), got->tokens.begin(), got->tokens.end());
    const at::Tensor want =
        at::log_softmax(model::Llama(made.config, made.weights)
                            .logits(model::pack({{all.begin(), all.end()}}),
                                    adaptation ? *adaptation : model::Adaptation())
                            .to(at::kDouble),
                        1);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(*got->logprobs[i].logprob, want[20 + i].max().item<double>(), 1e-4) << i;
      EXPECT_NEAR(want[20 + i][got->tokens[i]].item<double>(), want[20 + i].max().item<double>(),
                  1e-4)
          << i;
    }
    const auto whole = ask(testing::scoring(all), adaptation, 256),
               parts = ask(testing::scoring(all), adaptation, 32);
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_NEAR(*whole->logprobs[i].logprob,
                  want[static_cast<int64_t>(i) - 1][all[i]].item<double>(), 1e-4)
          << i;
    }
    EXPECT_EQ(whole->values(), parts->values());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SecondMapServingTest,
                         ::testing::ValuesIn(dex::testing::second_map_cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace dex::serve
