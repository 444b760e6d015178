#include "worker/serve/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <thread>

#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/llama.h"

namespace dex::serve {
namespace {

using testing::Collector;
using testing::greedy;
using testing::scoring;

class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  EngineTest() {
    train::testing::write_tiny_model(dir.path());
    model = load_serving_model(dir.path(), Dtype::kF32);
    config = train::testing::tiny_config();
    weights = train::testing::tiny_weights(config);
    uint64_t stream = 1000;
    for (const auto& options : testing::tiny_options()) {
      sources.push_back(testing::tiny_adapter(options, stream += 100, model->weights_sha256));
      const std::string number = std::to_string(sources.size());
      adapters.push_back(make_serving_adapter(sources.back(), "adapter-" + number,
                                              number + std::string(63, 'e'), *model));
    }
  }

  std::unique_ptr<Engine> engine(Engine::Options options = {}) {
    options.threads = 1;
    return std::make_unique<Engine>(model, nullptr, options, clock);
  }
  [[nodiscard]] int count() const { return static_cast<int>(adapters.size()); }
  // The base and every adapter in turn.
  [[nodiscard]] int which_of(int i) const { return i % (count() + 1) - 1; }
  // −1: the base.
  std::shared_ptr<const ServingAdapter> adapter(int i) const {
    return i < 0 ? nullptr : adapters.at(i);
  }

  std::shared_ptr<Collector> submit(Engine& engine, Request request, int which = -1,
                                    uint64_t handle = 0) {
    auto collector = std::make_shared<Collector>();
    const auto status =
        engine.submit(handle ? handle : next++, std::move(request), adapter(which), collector);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return collector;
  }
  std::shared_ptr<Collector> alone(Request request, int which = -1) {
    auto one = engine();
    auto out = submit(*one, std::move(request), which);
    one->run_until_idle();
    return out;
  }
  // Log-probabilities of all next tokens by the trainer's forward pass, [N, V] fp64.
  at::Tensor reference(const std::vector<int32_t>& tokens, int which) {
    const at::NoGradGuard no_grad;
    const model::Batch batch = model::pack({{tokens.begin(), tokens.end()}});
    const model::Llama llama(config, weights);
    const at::Tensor logits =
        which < 0 ? llama.logits(batch) : llama.logits(batch, sources.at(which).adaptation);
    return at::log_softmax(logits.to(at::kDouble), 1);
  }
  static std::vector<int32_t> prompt(int32_t length, int32_t seed) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < length; ++i) out.push_back((seed * 31 + i * i * 7 + i * 3 + 5) % 97);
    return out;
  }

  support::TemporaryDirectory dir;
  support::ManualClock clock;
  std::shared_ptr<const ServingModel> model;
  model::Config config;
  model::Weights weights;
  std::vector<model::Adapter> sources;
  std::vector<std::shared_ptr<const ServingAdapter>> adapters;
  uint64_t next = 1;
};

TEST_F(EngineTest, ScoresAsTheTrainersForwardPass) {
  const auto tokens = prompt(40, 1);
  for (int which = -1; which < count(); ++which) {
    const at::Tensor want = reference(tokens, which);
    const auto got = alone(scoring(tokens), which);
    ASSERT_TRUE(got->outcome.error.ok());
    ASSERT_EQ(got->logprobs.size(), 40U);
    EXPECT_FALSE(got->logprobs[0].logprob.has_value());
    for (int64_t i = 1; i < 40; ++i) {
      EXPECT_NEAR(*got->logprobs[i].logprob, want[i - 1][tokens[i]].item<double>(), 1e-4)
          << which << " at " << i;
    }
    EXPECT_EQ(got->outcome.completion_tokens, 0);
    EXPECT_EQ(got->outcome.reason, FinishReason::kLength);
  }
  EXPECT_GT((reference(tokens, 0) - reference(tokens, -1)).abs().max().item<double>(),
            0.5);  // not the base
}

TEST_F(EngineTest, PrefillAndDecodeAreOneForwardPass) {
  for (int which = -1; which < count(); ++which) {
    const auto first = prompt(21, 2);
    const auto got = alone(greedy(first, 20), which);
    ASSERT_EQ(got->tokens.size(), 20U);
    std::vector<int32_t> all = first;
    all.insert(all.end(), got->tokens.begin(), got->tokens.end());
    const at::Tensor want = reference(all, which);
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(got->tokens[i], want[20 + i].argmax().item<int64_t>()) << which << " at " << i;
      EXPECT_NEAR(*got->logprobs[i].logprob, want[20 + i].max().item<double>(), 1e-4);
    }
  }
}

TEST_F(EngineTest, ChunksDoNotChangeAnything) {
  const auto tokens = prompt(150, 3);
  for (int which = -1; which < count(); ++which) {
    std::map<int32_t, std::vector<float>> values;
    std::map<int32_t, std::vector<int32_t>> made;
    for (const int32_t chunk : {32, 37, 256}) {
      auto one = engine({.chunk_tokens = chunk});
      Request request = greedy(tokens, 10);
      request.echo = true;
      const auto got = submit(*one, request, which);
      one->run_until_idle();
      values[chunk] = got->values();
      made[chunk] = got->tokens;
    }
    EXPECT_EQ(values[32].size(), 159U);
    EXPECT_EQ(values[32], values[256]) << which;  // to the bit
    EXPECT_EQ(values[37], values[256]) << which;
    EXPECT_EQ(made[32], made[256]) << which;
  }
}

TEST_F(EngineTest, AMixedBatchIsEachAlone) {
  std::vector<std::shared_ptr<Collector>> together;
  auto many = engine();
  // Two of each: neighbours that share a product, and others.
  const int requests = 2 * (count() + 1);
  const auto request = [](int i) { return greedy(prompt(5 + 5 * i, i), 12); };
  for (int i = 0; i < requests; ++i) together.push_back(submit(*many, request(i), which_of(i)));
  many->run_until_idle();
  for (int i = 0; i < requests; ++i) {
    const auto one = alone(request(i), which_of(i));
    EXPECT_EQ(together[i]->tokens, one->tokens) << i;
    EXPECT_EQ(together[i]->values(), one->values())
        << i;  // to the bit: no row depends on its neighbours
    EXPECT_EQ(together[i]->ends, 1);
  }
}

TEST_F(EngineTest, APoolThatIsTooSmallOnlyMakesThemWait) {
  const int64_t a_block =
      KvPool::block_bytes({config.kv_heads, config.head_dim, kernels::Number::kF32}, config.layers);
  auto small = engine(
      {.kv_cache_bytes = 12 * a_block, .max_running = 16});  // 192 tokens for 16 times up to 100
  std::vector<std::shared_ptr<Collector>> all;
  for (int i = 0; i < 16; ++i)
    all.push_back(submit(*small, greedy(prompt(30 + i, i), 60), which_of(i)));
  small->run_until_idle();
  EXPECT_GT(small->preemptions(), 0);
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(all[i]->outcome.error.ok());
    EXPECT_EQ(all[i]->tokens, alone(greedy(prompt(30 + i, i), 60), which_of(i))->tokens) << i;
  }
  EXPECT_EQ(small->load(), (Engine::Load{0, 0, 0}));
}

TEST_F(EngineTest, TheSameSeedIsTheSameReplyWhateverElseRuns) {
  Request request = greedy(prompt(9, 4), 30);
  request.sampling = {.temperature = 1.2, .top_p = 0.95, .top_k = 40, .seed = 77};
  const auto first = alone(request);
  auto busy = engine();
  std::vector<std::shared_ptr<Collector>> others;
  for (int i = 0; i < 5; ++i) others.push_back(submit(*busy, greedy(prompt(40, i), 40), i % 4));
  const auto second = submit(*busy, request);
  busy->run_until_idle();
  EXPECT_EQ(first->tokens, second->tokens);
  request.sampling.seed = 78;
  EXPECT_NE(alone(request)->tokens, first->tokens);
}

TEST_F(EngineTest, ReusesThePrefixOfTheSameAdapterOnly) {
  auto one = engine();
  const auto ask = [&](int which) {
    const auto out = submit(*one, greedy(prompt(50, 5), 8), which);
    one->run_until_idle();
    return out;
  };
  const auto first = ask(0), again = ask(0), other = ask(1), base = ask(-1);
  EXPECT_EQ(first->outcome.cached_tokens, 0);
  EXPECT_EQ(again->outcome.cached_tokens, 48);
  EXPECT_EQ(again->tokens, first->tokens);
  EXPECT_EQ(other->outcome.cached_tokens, 0);
  EXPECT_EQ(base->outcome.cached_tokens, 0);
  // Log-probabilities of the prompt need every position.
  EXPECT_EQ(submit(*one, scoring(prompt(50, 5)), 0)->outcome.cached_tokens, 0);
  one->run_until_idle();
}

// The sums at a block's end are not kept with it, so such an adapter computes every prompt whole.
TEST_F(EngineTest, AdaptersThatCarrySumsReuseNoPrefix) {
  for (int which = 0; which < count(); ++which) {
    auto one = engine();
    const auto ask = [&] {
      const auto out = submit(*one, greedy(prompt(50, 5), 8), which);
      one->run_until_idle();
      return out;
    };
    const auto first = ask(), again = ask();
    const bool sums = sources[which].adaptation.options.keeps_state();
    EXPECT_EQ(adapters[which]->keeps_state(), sums);
    EXPECT_EQ(again->outcome.cached_tokens, sums ? 0 : 48) << which;
    EXPECT_EQ(again->tokens, first->tokens) << which;
  }
}

// A sequence that ends early leaves nothing to those that come after it, its slot's new owner
// included.
TEST_F(EngineTest, SumsEndWithTheirSequence) {
  const int which = testing::kPrefixMean;
  auto one = engine({.max_running = 1});
  const auto victim = submit(*one, greedy(prompt(20, 6), 200), which, 900);
  victim->after_delta = [&] {
    if (victim->tokens.size() == 5) one->cancel(900);
  };
  const auto next_one = submit(*one, greedy(prompt(20, 7), 30), which);
  one->run_until_idle();
  EXPECT_EQ(victim->outcome.reason, FinishReason::kCancelled);
  EXPECT_EQ(next_one->values(), alone(greedy(prompt(20, 7), 30), which)->values());
}

TEST_F(EngineTest, CancelFreesTheSlotAtTheNextStep) {
  auto one = engine({.max_running = 2});
  const auto victim = submit(*one, greedy(prompt(20, 6), 200), -1, 900);
  victim->after_delta = [&] {
    if (victim->tokens.size() == 5) one->cancel(900);
  };
  const auto neighbour = submit(*one, greedy(prompt(20, 7), 30));
  const auto waiting = submit(*one, greedy(prompt(20, 8), 5));
  one->run_until_idle();
  EXPECT_EQ(victim->tokens.size(), 5U);
  EXPECT_EQ(victim->outcome.reason, FinishReason::kCancelled);
  EXPECT_EQ(victim->ends, 1);
  EXPECT_EQ(neighbour->tokens, alone(greedy(prompt(20, 7), 30))->tokens);
  EXPECT_EQ(waiting->tokens.size(), 5U);
  EXPECT_EQ(one->load().kv_usage_ratio, 0);
  one->cancel(900);  // gone: ignored
  one->run_until_idle();
}

TEST_F(EngineTest, StopsWhereItIsTold) {
  const auto free = alone(greedy(prompt(20, 9), 20));
  Request request = greedy(prompt(20, 9), 20);
  request.stop_token_ids = {free->tokens[6]};
  const auto stopped = alone(request);
  EXPECT_EQ(stopped->outcome.reason, FinishReason::kStop);
  EXPECT_EQ(stopped->outcome.stop_reason, std::to_string(free->tokens[6]));
  const auto first = std::ranges::find(free->tokens, free->tokens[6]) - free->tokens.begin();
  EXPECT_EQ(static_cast<int64_t>(stopped->tokens.size()), first + 1);
  EXPECT_EQ(stopped->logprobs.size(), stopped->tokens.size());  // the stop token has its entry

  request.min_tokens = 15;  // forbidden until then: other tokens come
  const auto later = alone(request);
  EXPECT_GE(later->tokens.size(), 15U);
  for (int i = 0; i < 15; ++i) EXPECT_NE(later->tokens[i], free->tokens[6]);
}

TEST_F(EngineTest, TheModelsEndOfSequenceEndsIt) {
  // Raise token 2, the end of sequence of config.json, by a prompt that leads there: search for
  // one.
  for (int seed = 0; seed < 400; ++seed) {
    Request request = greedy(prompt(6, seed), 40);
    const auto free = alone(request);
    const auto at = std::ranges::find(free->tokens, 2);
    if (at == free->tokens.end()) continue;
    request.ignore_eos = false;
    const auto ended = alone(request);
    EXPECT_EQ(ended->outcome.reason, FinishReason::kStop);
    EXPECT_EQ(ended->outcome.stop_reason, "");
    EXPECT_EQ(static_cast<int64_t>(ended->tokens.size()), at - free->tokens.begin() + 1);
    return;
  }
  FAIL() << "no prompt leads to the end of sequence";
}

TEST_F(EngineTest, RefusesWhatCannotBeServed) {
  auto one = engine({.max_running = 1, .max_waiting = 1});
  auto listener = std::make_shared<Collector>();
  const auto refused = [&](Request request) {
    return one->submit(next++, std::move(request), nullptr, listener);
  };
  EXPECT_EQ(refused(greedy({}, 5)).violations().at(0).field, "prompt");
  EXPECT_EQ(refused(greedy({1, 97}, 5)).violations().at(0).field, "tokens.ids");
  const auto long_one = refused(greedy(prompt(250, 1), 7));
  EXPECT_EQ(long_one.reason(), "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_THAT(long_one.message(), ::testing::HasSubstr("256 tokens, the request needs 257"));
  Request bad = greedy({1}, 5);
  bad.sampling = {
      .temperature = 2.5, .top_p = 0, .top_k = -1, .repetition_penalty = 0, .presence_penalty = 3};
  bad.stop = {"x"};
  bad.top_logprobs = 21;
  EXPECT_EQ(refused(bad).violations().size(), 7U) << refused(bad).to_string();  // all at once
  bad = greedy({1}, 5);
  bad.sampling.temperature = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refused(bad).violations().at(0).field, "temperature");
  EXPECT_EQ(refused(greedy({1}, 0)).violations().at(0).field, "max_tokens");

  submit(*one, greedy({1}, 3));
  submit(*one, greedy({1}, 3));
  EXPECT_EQ(refused(greedy({1}, 3)).reason(), "QUEUE_FULL");
  one->drain();
  EXPECT_EQ(refused(greedy({1}, 3)).reason(), "SERVER_DRAINING");
  one->run_until_idle();  // what was taken is still served
  EXPECT_EQ(listener->ends, 0);
  EXPECT_TRUE(one->idle());
}

TEST_F(EngineTest, TimeRunsOut) {
  auto one = engine();
  Request request = greedy(prompt(10, 1), 200);
  request.timeout_ms = 1000;
  const auto slow = submit(*one, request);
  slow->after_delta = [&] { clock.advance_ms(300); };
  const auto other = submit(*one, greedy(prompt(10, 2), 20));
  one->run_until_idle();
  EXPECT_EQ(slow->outcome.error.code(), base::Code::kDeadlineExceeded);
  EXPECT_LT(slow->tokens.size(), 6U);
  EXPECT_EQ(other->tokens.size(), 20U);
}

TEST_F(EngineTest, AFaultyAdapterEndsOnlyItsOwnRequests) {
  model::Adapter broken = sources[0];
  for (auto& layer : broken.adaptation.layers) {
    layer.v = at::full_like(layer.v, std::numeric_limits<float>::infinity());
  }
  const auto faulty = make_serving_adapter(broken, "faulty", std::string(64, 'f'), *model);
  auto one = engine();
  std::vector<std::shared_ptr<Collector>> good, bad;
  for (int i = 0; i < 4; ++i) {
    good.push_back(submit(*one, greedy(prompt(10, i), 20), i % 2));
    bad.push_back(std::make_shared<Collector>());
    ASSERT_TRUE(one->submit(next++, greedy(prompt(10, i), 20), faulty, bad.back()).ok());
  }
  one->run_until_idle();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(bad[i]->outcome.error.code(), base::Code::kInternal);
    EXPECT_THAT(bad[i]->outcome.error.message(), ::testing::HasSubstr("faulty"));
    EXPECT_EQ(good[i]->tokens, alone(greedy(prompt(10, i), 20), i % 2)->tokens);
  }
  // Its blocks are used again by others: nothing of it is left.
  const auto after = submit(*one, greedy(prompt(100, 5), 20));
  one->run_until_idle();
  EXPECT_EQ(after->tokens, alone(greedy(prompt(100, 5), 20))->tokens);
}

TEST_F(EngineTest, RunEndsWhatIsLeftWhenStopped) {
  auto one = engine();
  std::stop_source stop;
  const auto endless = submit(*one, greedy(prompt(10, 1), 240));
  endless->after_delta = [&] {
    if (endless->tokens.size() == 3) stop.request_stop();
  };
  one->run(stop.get_token());
  EXPECT_EQ(endless->outcome.error.reason(), "SERVER_DRAINING");
  EXPECT_EQ(endless->ends, 1);
}

TEST_F(EngineTest, Bf16StaysClose) {
  const auto rounded = load_serving_model(dir.path(), Dtype::kBf16);
  const auto tokens = prompt(40, 1);
  for (const int which : {-1, 0, testing::kPrefixMean, testing::kUniformMap}) {
    auto collector = std::make_shared<Collector>();
    Engine one(rounded, nullptr, {.threads = 2}, clock);
    const auto small =
        which < 0 ? nullptr
                  : make_serving_adapter(sources[which], "a", std::string(64, 'a'), *rounded);
    ASSERT_TRUE(one.submit(1, scoring(tokens), small, collector).ok());
    one.run_until_idle();
    const auto exact = alone(scoring(tokens), which)->values(), got = collector->values();
    ASSERT_EQ(exact.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 0.15) << i;
  }
}

}  // namespace
}  // namespace dex::serve
