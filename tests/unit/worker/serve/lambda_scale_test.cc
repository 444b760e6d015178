// dex_lambda_scale: one adapter at several strengths of its branch, side by side.
#include "worker/serve/lambda_scale.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/llama.h"
#include "worker/serve/adapter_table.h"
#include "worker/serve/engine.h"

namespace dex::serve {
namespace {

using testing::Collector;
using testing::greedy;
using ::testing::HasSubstr;
using testing::scoring;
using AdapterPtr = std::shared_ptr<const ServingAdapter>;

// The same adapter as if it had been trained to λ·scale.
model::Adapter with_lambda(model::Adapter adapter, double scale) {
  for (double& lambda : adapter.lambda) lambda *= scale;
  for (auto& layer : adapter.adaptation.layers) {
    layer.lambda.fixed *= scale;
    layer.lambda.learned *= scale;
  }
  return adapter;
}

class LambdaScaleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  LambdaScaleTest() {
    train::testing::write_tiny_model(dir / "model");
    model = load_serving_model(dir / "model", Dtype::kF32);
    uint64_t stream = 1000;
    for (const auto& options : testing::tiny_options()) {
      sources.push_back(testing::tiny_adapter(options, stream += 100, model->weights_sha256));
      const std::string number = std::to_string(sources.size());
      folded.push_back(make_serving_adapter(sources.back(), "adapter-" + number,
                                            number + std::string(63, 'e'), *model));
      const bool apart = folded.back()->is_folded();
      scaled.push_back(apart ? make_branch_apart(folded.back(), sources.back(), *model)
                             : folded.back());
    }
  }

  // Those of `sources` that have a branch.
  [[nodiscard]] std::vector<int> branched() const {
    std::vector<int> out;
    for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
      if (sources[i].adaptation.options.has_branch()) out.push_back(i);
    }
    return out;
  }
  [[nodiscard]] AdapterPtr adapter(int which, std::optional<double> scale) const {
    if (which < 0) return nullptr;
    return scale.value_or(1) == 1 ? folded.at(which) : scaled.at(which);
  }
  std::unique_ptr<Engine> engine() {
    return std::make_unique<Engine>(model, nullptr, Engine::Options{.threads = 1}, clock);
  }
  // −1: the base.
  std::shared_ptr<Collector> submit(Engine& to, Request request, int which,
                                    std::optional<double> scale) {
    auto collector = std::make_shared<Collector>();
    request.dex_lambda_scale = scale;
    const auto status = to.submit(next++, std::move(request), adapter(which, scale), collector);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return collector;
  }
  std::shared_ptr<Collector> alone(Request request, int which, std::optional<double> scale) {
    auto one = engine();
    auto out = submit(*one, std::move(request), which, scale);
    one->run_until_idle();
    return out;
  }
  std::shared_ptr<Collector> alone(Request request, const AdapterPtr& which) {
    auto one = engine();
    auto out = std::make_shared<Collector>();
    EXPECT_TRUE(one->submit(next++, std::move(request), which, out).ok());
    one->run_until_idle();
    return out;
  }
  // Prompt and completion with the log-probability of each token.
  static Request whole(int32_t seed) {
    Request request = greedy(prompt(21, seed), 12);
    request.echo = true;
    return request;
  }
  static std::vector<int32_t> prompt(int32_t length, int32_t seed) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < length; ++i) out.push_back((seed * 31 + i * i * 7 + i * 3 + 5) % 97);
    return out;
  }

  support::TemporaryDirectory dir;
  support::ManualClock clock;
  std::shared_ptr<const ServingModel> model;
  std::vector<model::Adapter> sources;
  std::vector<AdapterPtr> folded, scaled;
  uint64_t next = 1;
};

TEST_F(LambdaScaleTest, OneIsNoScaleAtAll) {
  for (const int which : branched()) {
    const auto plain = alone(whole(1), which, std::nullopt), one = alone(whole(1), which, 1.0);
    EXPECT_EQ(plain->tokens, one->tokens) << which;
    EXPECT_EQ(plain->values(), one->values()) << which;  // to the bit
  }
}

TEST_F(LambdaScaleTest, ZeroOfDexOnlyIsTheBaseToTheBit) {
  const auto base = alone(whole(2), -1, std::nullopt);
  for (const int which : {testing::kDexOnly, testing::kDexOnlyGelu}) {
    const auto zero = alone(whole(2), which, 0.0);
    EXPECT_EQ(zero->tokens, base->tokens) << which;
    EXPECT_EQ(zero->values(), base->values()) << which;
    EXPECT_NE(alone(whole(2), which, 1.0)->values(), base->values()) << which;
  }
}

TEST_F(LambdaScaleTest, ZeroOfKvoIsItsTrainedWeightsWithoutABranch) {
  for (const int which : {testing::kPaper, testing::kHeadMean, testing::kPrefixMean}) {
    model::Adapter bare = sources[which];
    bare.adaptation.options.form = model::Form::kNone;
    bare.adaptation.options.train = model::Train::kKvoOnly;
    const auto without = make_serving_adapter(bare, "bare", std::string(64, 'b'), *model);
    const auto zero = alone(whole(3), which, 0.0), expected = alone(whole(3), without);
    EXPECT_EQ(zero->tokens, expected->tokens) << which;
    EXPECT_EQ(zero->values(), expected->values()) << which;
  }
}

// Against the trainer's forward pass with λ·scale, and against the adapter that was folded with it.
TEST_F(LambdaScaleTest, AnyOtherIsTheAdapterOfThatLambda) {
  const model::Config config = train::testing::tiny_config();
  const model::Weights weights = train::testing::tiny_weights(config);
  const model::Llama llama(config, weights);
  for (const int which : branched()) {
    const auto full = alone(whole(4), which, 1.0);
    for (const double scale : {0.25, 0.5, 0.9}) {
      const auto got = alone(whole(4), which, scale);
      ASSERT_EQ(got->tokens.size(), 33U);
      const model::Adapter other = with_lambda(sources[which], scale);
      const at::NoGradGuard no_grad;
      const model::Batch batch = model::pack({{got->tokens.begin(), got->tokens.end()}});
      const at::Tensor want =
          at::log_softmax(llama.logits(batch, other.adaptation).to(at::kDouble), 1);
      const auto values = got->values();
      ASSERT_EQ(values.size(), 32U);
      for (int64_t i = 1; i < 33; ++i) {
        EXPECT_NEAR(values[i - 1], want[i - 1][got->tokens[i]].item<double>(), 1e-4)
            << which << " × " << scale << " at " << i;
      }
      EXPECT_NE(values, full->values()) << which;
      const auto refolded = make_serving_adapter(other, "other", std::string(64, 'o'), *model);
      const auto scores = alone(scoring(got->tokens), refolded)->values();
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(scores[i], values[i], 1e-4) << which;
    }
  }
}

TEST_F(LambdaScaleTest, ABatchOfManyScalesIsEachAlone) {
  const std::vector<std::optional<double>> scales = {std::nullopt, 0.5, 0.0, 0.25, 1.0, 0.5};
  struct Asked {
    int which;
    std::optional<double> scale;
  };
  std::vector<Asked> asked;
  for (const auto& scale : scales) {
    for (const int which :
         {testing::kPaper, testing::kHeadMean, testing::kPrefixMean, testing::kLoraPaper})
      asked.push_back({which, scale});
    asked.push_back({-1, std::nullopt});
  }
  const auto request = [](size_t i) {
    const auto n = static_cast<int32_t>(i);
    return greedy(prompt(5 + 3 * n, n), 12);
  };
  auto many = engine();
  std::vector<std::shared_ptr<Collector>> together;
  for (size_t i = 0; i < asked.size(); ++i)
    together.push_back(submit(*many, request(i), asked[i].which, asked[i].scale));
  many->run_until_idle();
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto one = alone(request(i), asked[i].which, asked[i].scale);
    EXPECT_EQ(together[i]->tokens, one->tokens) << i;
    EXPECT_EQ(together[i]->values(), one->values()) << i;  // to the bit
  }
}

TEST_F(LambdaScaleTest, APrefixIsSharedAtOneScaleOnly) {
  for (const int which : {testing::kPaper, testing::kDexOnly}) {
    auto one = engine();
    std::map<double, std::vector<int32_t>> said;
    const auto cached = [&](double scale) {
      const auto out = submit(*one, greedy(prompt(50, 5), 8), which, scale);
      one->run_until_idle();
      const auto [known, first] = said.emplace(scale, out->tokens);
      EXPECT_EQ(known->second, out->tokens) << scale;
      EXPECT_EQ(out->tokens, alone(greedy(prompt(50, 5), 8), which, scale)->tokens) << scale;
      return out->outcome.cached_tokens;
    };
    for (const double scale : {1.0, 0.5, 0.0, 0.25}) EXPECT_EQ(cached(scale), 0) << scale;
    for (const double scale : {0.25, 0.0, 0.5, 1.0}) EXPECT_EQ(cached(scale), 48) << scale;
    // The base's own prefix is none of an adapter's, however it is scaled.
    const auto base = submit(*one, greedy(prompt(50, 5), 8), -1, std::nullopt);
    one->run_until_idle();
    EXPECT_EQ(base->outcome.cached_tokens, 0);
  }
}

TEST_F(LambdaScaleTest, RefusesWhatItCannotScale) {
  auto one = engine();
  const auto refused = [&](double scale, const AdapterPtr& which) {
    Request request = greedy({1, 2, 3}, 5);
    request.dex_lambda_scale = scale;
    return one->submit(next++, std::move(request), which, std::make_shared<Collector>());
  };
  model::DexOptions options;
  options.form = model::Form::kNone;
  options.train = model::Train::kKvoOnly;
  const auto control =
      make_serving_adapter(testing::tiny_adapter(options, 5, model->weights_sha256), "control",
                           std::string(64, 'c'), *model);
  for (const auto& which : {AdapterPtr(), folded[testing::kAttentionLora],
                            folded[testing::kBottleneckAdapter], control}) {
    for (const double scale : {0.5, 1.0}) {
      const auto status = refused(scale, which);
      EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
      EXPECT_EQ(status.reason(), "UNUSED_FIELD");
      EXPECT_EQ(status.violations().at(0).field, "dex_lambda_scale");
    }
  }
  EXPECT_THAT(refused(0.5, control).message(),
              HasSubstr("dex_lambda_scale has no effect, got 0.5"));
  EXPECT_THAT(refused(0.5, control).message(), HasSubstr("adapter control of method kvo_only"));
  EXPECT_THAT(refused(0.5, folded[testing::kAttentionLora]).message(), HasSubstr("method lora"));
  EXPECT_THAT(refused(0.5, nullptr).message(), HasSubstr("the base model answers"));
  for (const double scale : {-0.1, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    const auto status = refused(scale, scaled[testing::kPaper]);
    EXPECT_EQ(status.reason(), "VALUE_OUT_OF_RANGE") << scale;
    EXPECT_EQ(status.violations().at(0).field, "dex_lambda_scale");
  }
  // No request of a user's: the engine's callers bring the right form.
  EXPECT_EQ(refused(0.5, folded[testing::kPaper]).code(), base::Code::kInternal);
  EXPECT_TRUE(one->idle());
}

// Which weights are below 0 depends on the branch that acts.
TEST_F(LambdaScaleTest, AttentionIsMeasuredAsItActs) {
  Request request = greedy(prompt(20, 6), 2);
  request.attention_parts = std::vector<uint8_t>(20, 1);
  std::fill_n(request.attention_parts.begin(), 7, uint8_t{0});
  const auto zero = alone(request, testing::kUniformMap, 0.0)->outcome;
  const auto half = alone(request, testing::kUniformMap, 0.5)->outcome;
  EXPECT_FALSE(zero.attention_magnitudes);
  EXPECT_TRUE(half.attention_magnitudes);
  const auto expected =
      alone(request, make_serving_adapter(with_lambda(sources[testing::kUniformMap], 0.5), "half",
                                          std::string(64, 'h'), *model));
  ASSERT_EQ(half.attention.size(), 2U);
  EXPECT_NEAR(half.attention[0], expected->outcome.attention[0], 1e-6);
  EXPECT_NEAR(zero.attention[0] + zero.attention[1], 1, 1e-9);
}

TEST_F(LambdaScaleTest, ApartSharesAllButItsOutputProjection) {
  const auto& kvo = *folded[testing::kPaper];
  const auto& apart = *scaled[testing::kPaper];
  EXPECT_FALSE(apart.is_folded());
  for (size_t i = 0; i < kvo.layers.size(); ++i) {
    EXPECT_EQ(apart.layers[i].k.data, kvo.layers[i].k.data);
    EXPECT_EQ(apart.layers[i].v.data, kvo.layers[i].v.data);
    EXPECT_NE(apart.layers[i].o.data, kvo.layers[i].o.data);
  }
  EXPECT_EQ(apart.bytes, 2 * (32 * 32 + 8 * 8) * 4);  // W_O and w_d
  // Nothing of W_O is its own: the base's, in one product with the base's rows.
  EXPECT_EQ(scaled[testing::kDexOnly]->layers[0].o.data, nullptr);
  EXPECT_EQ(scaled[testing::kDexOnly]->bytes, 2 * 8 * 8 * 4);
}

TEST_F(LambdaScaleTest, ItIsReadAgainFromItsFolderAsLongAsThatIsTheSame) {
  const auto path = dir / "adapter";
  model::write_adapter(path, sources[testing::kPaper]);
  const auto loaded = load_serving_adapter(path, "a", {}, *model);
  Request half = whole(7);
  half.dex_lambda_scale = 0.5;
  const auto again = alone(half, load_branch_apart(loaded, *model));
  EXPECT_EQ(again->values(), alone(whole(7), testing::kPaper, 0.5)->values());

  const auto why_not = [&] {
    try {
      load_branch_apart(loaded, *model);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  std::filesystem::remove_all(path);
  EXPECT_THAT(why_not(), HasSubstr("adapter"));
  model::write_adapter(path, with_lambda(sources[testing::kPaper], 0.5));
  EXPECT_THAT(why_not(), HasSubstr("another adapter than when it was loaded"));
}

TEST_F(LambdaScaleTest, TheTableMakesItOnceAndCountsIt) {
  const int64_t whole_bytes = folded[testing::kPaper]->bytes + scaled[testing::kPaper]->bytes;
  AdapterTable table(whole_bytes);
  const std::string id = folded[testing::kPaper]->id;
  table.put(folded[testing::kPaper]);
  EXPECT_EQ(table.find_apart(id), nullptr);
  EXPECT_EQ(table.find_apart("unknown"), nullptr);
  int made = 0;
  const auto make = [&](AdapterPtr from) {
    ++made;
    EXPECT_EQ(from, folded[testing::kPaper]);
    return scaled[testing::kPaper];
  };
  EXPECT_FALSE(table.make_apart("unknown", make));
  EXPECT_TRUE(table.make_apart(id, make));
  EXPECT_TRUE(table.make_apart(id, make));
  EXPECT_EQ(made, 1);
  EXPECT_EQ(table.bytes(), whole_bytes);
  auto request = table.find_apart(id);
  EXPECT_EQ(request.get(), scaled[testing::kPaper].get());
  bool gone = false;
  EXPECT_TRUE(table.remove(id, [&] { gone = true; }));
  EXPECT_FALSE(gone);  // a request has it
  request.reset();
  EXPECT_TRUE(gone);
  EXPECT_EQ(table.bytes(), 0);

  AdapterTable full(folded[testing::kPaper]->bytes);
  full.put(folded[testing::kPaper]);
  EXPECT_THROW(full.make_apart(id, make), NoRoom);
  EXPECT_EQ(full.bytes(), folded[testing::kPaper]->bytes);
  EXPECT_EQ(full.find_apart(id), nullptr);
  // What can't be folded is apart as it is.
  AdapterTable sums(1 << 20);
  sums.put(folded[testing::kPrefixMean]);
  EXPECT_EQ(sums.find_apart(folded[testing::kPrefixMean]->id).get(),
            folded[testing::kPrefixMean].get());
}

}  // namespace
}  // namespace dex::serve
