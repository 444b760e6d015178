// The engine on SmolLM2-135M-Instruct against transformers (tests/data/golden), and what only a
// real tokenizer shows. The model is put in place by deploy/setup.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "services/base/clock.h"
#include "services/text/utf8.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/serve/collector.h"
#include "worker/model/adapter.h"
#include "worker/model/weights.h"
#include "worker/serve/engine.h"
#include "worker/serve/text_model.h"

namespace dex::serve {
namespace {

using testing::Collector;
using testing::greedy;
using testing::scoring;

class SmolLm2Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    use_one_library_thread();
    dir = support::deps_dir() / "models/smollm2-135m-instruct";
    ASSERT_TRUE(std::filesystem::exists(dir / "config.json"))
        << dir << " is missing: run deploy/setup/all";
    serving = load_serving_model(dir, Dtype::kF32);
    auto loaded = TextModel::load(dir);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    text = std::move(loaded).value();
  }
  static void TearDownTestSuite() {
    serving.reset();
    text = {};
  }
  static nlohmann::json golden(const char* name) {
    std::ifstream file(support::source_dir() / "tests/data/golden" / name);
    auto json = nlohmann::json::parse(file);
    EXPECT_EQ(json["source"]["weights_sha256"], serving->weights_sha256)
        << "golden values of another model";
    return json;
  }

  // MiB of the model's file that are in this process' memory, mapped ones.
  static double mapped_mib() {
    std::ifstream maps("/proc/self/smaps");
    double kib = 0;
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
      // A mapping's first line begins with its addresses, those of its figures with a capital.
      if (std::isupper(static_cast<unsigned char>(line[0])) == 0)
        inside = line.find("model.safetensors") != std::string::npos;
      if (inside && line.starts_with("Rss:")) kib += std::stod(line.substr(4));
    }
    return kib / 1024;
  }

  std::shared_ptr<Collector> submit(Request request,
                                    std::shared_ptr<const ServingAdapter> adapter = nullptr) {
    auto out = std::make_shared<Collector>();
    const auto taken = engine.submit(next++, std::move(request), std::move(adapter), out);
    EXPECT_TRUE(taken.ok()) << taken.to_string();
    return out;
  }
  std::shared_ptr<Collector> run(Request request,
                                 std::shared_ptr<const ServingAdapter> adapter = nullptr) {
    auto out = submit(std::move(request), std::move(adapter));
    engine.run_until_idle();
    return out;
  }
  std::vector<int32_t> ids(const std::string& words) { return *text.encode_prompt(words); }

  static std::filesystem::path dir;
  static std::shared_ptr<const ServingModel> serving;
  static TextModel text;
  base::SystemClock clock;
  Engine engine{serving, text.tokenizer.get(), {.threads = 1}, clock};
  uint64_t next = 1;
};
std::filesystem::path SmolLm2Test::dir;
std::shared_ptr<const ServingModel> SmolLm2Test::serving;
TextModel SmolLm2Test::text;

// The file has 257 MiB, of which 203 are in panels by now; the embedding's rows stay mapped.
TEST_F(SmolLm2Test, WeightsThatWereCopiedTakeNoMemoryInTheirFile) {
  ASSERT_TRUE(serving->panels);
  const auto model = load_serving_model(dir, Dtype::kBf16);
  EXPECT_LT(mapped_mib(), 2 * 80) << "of two models, whose embeddings have 54 MiB each";
}

TEST_F(SmolLm2Test, GreedyIdsAndLogProbabilitiesAreThoseOfTransformers) {
  const auto file = golden("model.json");
  std::map<std::string, std::shared_ptr<Collector>> replies;  // all at once
  for (const auto& [name, entry] : file["cases"].items()) {
    Request request = greedy(entry["prompt"], static_cast<int32_t>(entry["greedy"].size()));
    request.echo = true;
    replies[name] = submit(request);
  }
  engine.run_until_idle();
  for (const auto& [name, entry] : file["cases"].items()) {
    std::vector<int32_t> want = entry["prompt"];
    const std::vector<int32_t> made = entry["greedy"];
    want.insert(want.end(), made.begin(), made.end());
    EXPECT_EQ(replies[name]->tokens, want) << name;
    const std::vector<double> logprobs = entry["token_logprobs"];
    const auto got = replies[name]->values();
    ASSERT_EQ(got.size(), logprobs.size()) << name;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], logprobs[i], 2e-3) << name << " at " << i;
  }
}

// Number i of tensor n by the rule of tests/data/golden/README.md.
float rule(uint32_t i, uint32_t n) {
  uint32_t x = i * 0x85EBCA6BU + n * 0x9E3779B9U;
  x = (x ^ x >> 16) * 0x7FEB352DU;
  x = (x ^ x >> 15) * 0x846CA68BU;
  x ^= x >> 16;
  return static_cast<float>(x / 4294967296.0 - 0.5);
}
at::Tensor rule_tensor(at::IntArrayRef shape, uint32_t n) {
  at::Tensor out = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data_ptr<float>()[i] = rule(static_cast<uint32_t>(i), n);
  return out;
}

TEST_F(SmolLm2Test, RandomAdaptersScoreAsInTransformers) {
  const auto file = golden("adapter.json");
  const auto& how = file["rule"];
  for (int i = 0; i < 4; ++i)
    ASSERT_NEAR(rule(i, 5), how["first_of_tensor_5"][i].get<double>(), 1e-7);
  const std::vector<int32_t> tokens = file["tokens"];
  const auto& c = serving->config;
  const model::Weights base = model::load_weights(dir, c, {at::kFloat, false});
  for (const auto& [name, entry] : file["cases"].items()) {
    model::Adapter adapter;
    auto& options = adapter.adaptation.options;
    options.form = model::parse_form(entry["form"].get<std::string>());
    options.projection = model::parse_projection(entry["projection"].get<std::string>());
    options.sign = model::parse_sign(entry["sign"].get<std::string>());
    options.train = model::parse_train(entry["train"].get<std::string>());
    options.lambda.schedule = model::Schedule::kConstant;
    for (int64_t l = 0; l < c.layers; ++l) {
      auto& layer = adapter.adaptation.layers.emplace_back();
      const auto n = static_cast<uint32_t>(8 * l);
      const bool per_head = options.projection == model::Projection::kPerHead;
      const std::vector<int64_t> shape = per_head
                                             ? std::vector<int64_t>{c.heads, c.head_dim, c.head_dim}
                                             : std::vector<int64_t>{c.head_dim, c.head_dim};
      layer.branch.w_d = rule_tensor(shape, n) * how["w_d_scale"].get<double>();
      if (options.form == model::Form::kHeadMean) {
        layer.branch.gate = rule_tensor({c.heads}, n + 4) * how["gate_scale"].get<double>();
      }
      if (options.trains_kvo()) {
        const double scale = how["kvo_scale"];
        const auto changed = [&](const at::Tensor& w, uint32_t tensor) {
          return w * (1 + scale * rule_tensor(w.sizes(), tensor));
        };
        layer.k = changed(base.layers[l].k, n + 1);
        layer.v = changed(base.layers[l].v, n + 2);
        layer.o = changed(base.layers[l].o, n + 3);
      }
      layer.mask = at::zeros({c.heads});
      for (const int64_t h : how["selected_heads"][l]) layer.mask[h] = 1;
      layer.lambda.fixed = how["lambda"][l];
    }
    const auto ready = make_serving_adapter(adapter, name, std::string(64, '1'), *serving);
    Engine fresh(serving, nullptr, {.threads = 1}, clock);
    auto got = std::make_shared<Collector>();
    ASSERT_TRUE(fresh.submit(1, scoring(tokens), ready, got).ok());
    fresh.run_until_idle();
    const std::vector<double> want = entry["token_logprobs"];
    ASSERT_EQ(got->values().size(), want.size()) << name;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got->values()[i], want[i], 2e-3) << name << " at " << i;
  }
}

TEST_F(SmolLm2Test, StopStringsAcrossTokensStayOutOfTheText) {
  const auto free = run(greedy(ids("def fibonacci(n):"), 30));
  ASSERT_GT(free->text.size(), 40U);
  // From the middle of one token to the middle of a later one.
  const std::string stop = free->text.substr(17, 9);
  Request request = greedy(ids("def fibonacci(n):"), 30);
  request.stop = {"never there", stop};
  const auto stopped = run(request);
  EXPECT_EQ(stopped->outcome.reason, FinishReason::kStop);
  EXPECT_EQ(stopped->outcome.stop_reason, stop);
  EXPECT_EQ(stopped->text, free->text.substr(0, free->text.find(stop)));
  EXPECT_LT(stopped->tokens.size(), 30U);
}

TEST_F(SmolLm2Test, TextIsWholeCharactersAtEveryStep) {
  // The prompt asks for what its tokens cut: emoji and Chinese.
  Request request = greedy(ids("\xF0\x9F\x98\x80 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 "
                               "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80"),
                           40);
  request.echo = true;
  const auto got = submit(request);
  std::vector<std::string> states;
  got->after_delta = [&] { states.push_back(got->text); };
  engine.run_until_idle();
  ASSERT_GT(states.size(), 5U);
  for (const std::string& state : states) EXPECT_TRUE(text::is_valid_utf8(state));
  EXPECT_EQ(got->text, *text.tokenizer->decode(got->tokens, true));
}

TEST_F(SmolLm2Test, LogProbabilitiesNameTheirTokens) {
  Request request = greedy(ids("The capital of France is"), 3);
  request.echo = true;
  request.top_logprobs = 3;
  const auto got = run(request);
  ASSERT_EQ(got->logprobs.size(), got->tokens.size());
  EXPECT_FALSE(got->logprobs[0].logprob.has_value());
  std::string all;
  for (const auto& entry : got->logprobs) {
    all += entry.text;
    if (!entry.logprob) continue;
    ASSERT_EQ(entry.top.size(), 3U);
    for (const auto& top : entry.top) {
      if (top.token == entry.token) {
        EXPECT_EQ(top.logprob, *entry.logprob);
        EXPECT_EQ(top.text, entry.text);
      }
    }
  }
  EXPECT_EQ(all, got->text);
  EXPECT_THAT(got->text, ::testing::StartsWith("The capital of France is Paris"));
}

TEST_F(SmolLm2Test, ChatsGoThroughTheTemplateAndEndByThemselves) {
  const std::vector<text::Message> messages = {
      {.role = "user", .content = "What is the capital of France?"}};
  Request request = greedy(*text.encode_chat(messages), 40);
  request.ignore_eos = false;
  const auto got = run(request);
  EXPECT_EQ(got->text, "The capital of France is Paris.");
  EXPECT_EQ(got->outcome.reason, FinishReason::kStop);
  EXPECT_EQ(got->tokens.back(), 2);  // <|im_end|>: counted, not shown
}

TEST_F(SmolLm2Test, SixteenAtOnceAreEachAlone) {
  std::vector<std::shared_ptr<Collector>> together, alone;
  const auto request = [&](int i) {
    Request out = greedy(
        ids("Question " + std::to_string(i) + ": what is " + std::to_string(i) + " + 1?"), 6);
    out.sampling = {.temperature = 0.8, .top_p = 0.9, .seed = static_cast<uint64_t>(i)};
    out.sampling.repetition_penalty = 1.1;
    return out;
  };
  for (int i = 0; i < 16; ++i) together.push_back(submit(request(i)));
  engine.run_until_idle();
  for (int i = 0; i < 16; i += 5) {
    Engine fresh(serving, text.tokenizer.get(), {.threads = 2}, clock);
    auto one = std::make_shared<Collector>();
    ASSERT_TRUE(fresh.submit(1, request(i), nullptr, one).ok());
    fresh.run_until_idle();
    EXPECT_EQ(together[i]->tokens, one->tokens) << i;
    EXPECT_EQ(together[i]->text, one->text) << i;
  }
}

}  // namespace
}  // namespace dex::serve
