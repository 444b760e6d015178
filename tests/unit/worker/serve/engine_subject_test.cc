#include "worker/serve/engine_subject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"

namespace dex::serve {
namespace {

class EngineSubjectTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }
  EngineSubjectTest() {
    train::testing::write_tiny_model(dir.path());
    model = load_serving_model(dir.path(), Dtype::kF32);
    engine = std::make_unique<Engine>(model, nullptr, Engine::Options{.threads = 1}, clock);
    adapter = make_serving_adapter(
        testing::tiny_adapter(testing::tiny_options()[0], 50, model->weights_sha256), "adapter",
        std::string(64, 'e'), *model);
  }
  std::vector<float> whole(const std::vector<int32_t>& tokens,
                           std::shared_ptr<const ServingAdapter> which = nullptr) {
    Engine fresh(model, nullptr, {.threads = 1}, clock);
    auto out = std::make_shared<testing::Collector>();
    EXPECT_TRUE(fresh.submit(1, testing::scoring(tokens), std::move(which), out).ok());
    fresh.run_until_idle();
    return out->values();
  }
  static std::vector<int32_t> ids(int32_t length, int32_t seed) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < length; ++i) out.push_back((seed * 31 + i * i * 7 + i * 3 + 5) % 97);
    return out;
  }

  support::TemporaryDirectory dir;
  base::SystemClock clock;
  std::shared_ptr<const ServingModel> model;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const ServingAdapter> adapter;
  TextModel text;
};

TEST_F(EngineSubjectTest, ScoresAreThoseOfTheWholePromptBitForBitWhateverIsShared) {
  // Three items behind one beginning, of which two blocks come from the cache.
  std::vector<evaluate::Subject::Scoring> items;
  for (int32_t own = 1; own <= 3; ++own) {
    auto tokens = ids(40, 2);
    const auto more = ids(5 + own, 10 + own);
    tokens.insert(tokens.end(), more.begin(), more.end());
    items.push_back({tokens, 40});
  }
  items.push_back({ids(9, 3), 1});
  items.push_back({ids(33, 2), 32});
  for (const auto& which : {std::shared_ptr<const ServingAdapter>(), adapter}) {
    EngineSubject subject(*engine, text, which, "x", 256);
    const auto scores = subject.score(items, {});
    for (size_t i = 0; i < items.size(); ++i) {
      const auto all = whole(items[i].tokens, which);
      const std::vector<float> expected(all.begin() + items[i].first - 1, all.end());
      EXPECT_EQ(scores[i], expected) << i;
    }
  }
}

TEST_F(EngineSubjectTest, AScaleOfLambdaGoesWithEveryItem) {
  const auto source =
      testing::tiny_adapter(testing::tiny_options()[testing::kDexOnly], 50, model->weights_sha256);
  const auto only = make_serving_adapter(source, "only", std::string(64, 'd'), *model);
  EngineSubject zero(*engine, text, make_branch_apart(only, source, *model), "zero", 256);
  zero.scale_lambda(0);
  EngineSubject whole_one(*engine, text, only, "one", 256);
  const auto tokens = ids(20, 4);
  const std::vector<evaluate::Subject::Scoring> items = {{tokens, 1}};
  EXPECT_EQ(zero.score(items, {}).at(0), whole(tokens));  // the base's
  EXPECT_EQ(whole_one.score(items, {}).at(0), whole(tokens, only));
  EXPECT_NE(whole(tokens, only), whole(tokens));
}

TEST_F(EngineSubjectTest, EntriesBeforeEchoFromAreTakenFromTheCache) {
  EngineSubject subject(*engine, text, nullptr, "x", 256);
  subject.score(std::vector<evaluate::Subject::Scoring>{{ids(50, 2), 49}}, {});
  const std::vector<int32_t> tokens = ids(50, 2);
  Request request = testing::scoring(tokens);
  request.echo_from = 34;
  auto out = std::make_shared<testing::Collector>();
  ASSERT_TRUE(engine->submit(1, request, nullptr, out).ok());
  engine->run_until_idle();
  EXPECT_EQ(out->outcome.cached_tokens, 32);  // two blocks; row 33 gives the first entry
  EXPECT_EQ(out->values().size(), 16U);
  EXPECT_EQ(out->tokens, std::vector<int32_t>(tokens.begin() + 34, tokens.end()));
}

TEST_F(EngineSubjectTest, AStopEndsWhatRuns) {
  EngineSubject subject(*engine, text, nullptr, "x", 256);
  std::stop_source stop;
  stop.request_stop();
  const std::vector<evaluate::Subject::Scoring> items = {{ids(50, 2), 1}};
  EXPECT_THROW(subject.score(items, stop.get_token()), evaluate::Stopped);
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(subject.score(items, {})[0].size(), 49U);  // and works afterwards
}

TEST_F(EngineSubjectTest, WhatTheEngineRefusesIsSaid) {
  EngineSubject subject(*engine, text, nullptr, "x", 256);
  const std::vector<evaluate::Subject::Scoring> items = {{ids(300, 2), 1}};
  EXPECT_THROW(subject.score(items, {}), std::runtime_error);
}

TEST_F(EngineSubjectTest, ExtrapolationGivesTheModelMorePositions) {
  const auto longer = load_serving_model(dir.path(), Dtype::kF32, {}, 300);
  EXPECT_EQ(longer->config.max_position_embeddings, 300);
  EXPECT_EQ(load_serving_model(dir.path(), Dtype::kF32, {}, 100)->config.max_position_embeddings,
            256);
  Engine far(longer, nullptr, {.threads = 1}, clock);
  EngineSubject subject(far, text, nullptr, "x", 256);
  const auto tokens = ids(300, 2);
  const auto scores = subject.score(std::vector<evaluate::Subject::Scoring>{{tokens, 1}}, {});
  const auto near = whole({tokens.begin(), tokens.begin() + 200});
  EXPECT_THAT(std::vector<float>(scores[0].begin(), scores[0].begin() + 199),
              ::testing::Pointwise(::testing::FloatNear(1e-4F), near));
}

}  // namespace
}  // namespace dex::serve
