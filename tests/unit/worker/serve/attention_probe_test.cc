// What the attention of a prompt's last token falls on, against the maps themselves: made whole
// from the queries and keys of the trainer's forward pass, or by hand for models that subtract one
// map from another.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/kernels/rope.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"
#include "worker/model/rope_frequencies.h"
#include "worker/serve/engine.h"
#include "worker/serve/engine_subject.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kParts = 3;

std::vector<uint8_t> parts_of(size_t tokens) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < tokens; ++i) out.push_back(static_cast<uint8_t>(i * i % 7 % kParts));
  return out;
}

// softmax of the last row of every head, [T, H] fp64, from q [T, H, d] and k [T, K, d].
at::Tensor last_row(const at::Tensor& q, const at::Tensor& k, int64_t window) {
  const int64_t length = q.size(0);
  const at::Tensor keys = k.to(at::kDouble).repeat_interleave(q.size(1) / k.size(1), 1);
  at::Tensor z =
      (keys * q[length - 1].to(at::kDouble)).sum(-1) / std::sqrt(static_cast<double>(q.size(2)));
  if (window > 0 && length > window)
    z.slice(0, 0, length - window).fill_(-std::numeric_limits<double>::infinity());
  return z.softmax(0);
}

// Shares of the rows of one layer, [kParts]: |M| over its sum, mean over heads.
at::Tensor shares_of(const at::Tensor& map, const std::vector<uint8_t>& parts) {
  const at::Tensor weights = map.abs() / map.abs().sum(0);
  at::Tensor out = at::zeros({kParts}, at::kDouble);
  for (int64_t t = 0; t < weights.size(0); ++t)
    out[parts[static_cast<size_t>(t)]] += weights[t].mean();
  return out;
}

struct Direct {
  const model::Config& config;
  const model::Weights& weights;

  // `constants`: what is added to each head's map, a layer [H]; empty: nothing.
  at::Tensor shares(const std::vector<int32_t>& tokens, const model::Adaptation& adaptation,
                    const std::vector<at::Tensor>& constants = {}) const {
    const at::NoGradGuard no_grad;
    at::Tensor out = at::zeros({kParts}, at::kDouble);
    model::Observer observer;
    observer.on_heads = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor&) {
      at::Tensor map = last_row(q, k, config.sliding_window);
      if (!constants.empty()) map = map + constants[static_cast<size_t>(layer)];
      out += shares_of(map, parts_of(tokens.size())) / static_cast<double>(config.layers);
    };
    model::Llama(config, weights)
        .hidden(model::pack({{tokens.begin(), tokens.end()}}), adaptation, observer);
    return out;
  }
};

class ProbeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  Outcome ask(const std::shared_ptr<const ServingModel>& model, const std::vector<int32_t>& tokens,
              std::shared_ptr<const ServingAdapter> adapter = nullptr,
              Engine::Options options = {.threads = 2}) {
    Engine engine(model, nullptr, options, clock);
    Request request = testing::greedy(tokens, 3);
    request.attention_parts = parts_of(tokens.size());
    auto collector = std::make_shared<testing::Collector>();
    const auto status = engine.submit(1, request, std::move(adapter), collector);
    EXPECT_TRUE(status.ok()) << status.to_string();
    engine.run_until_idle();
    EXPECT_TRUE(collector->outcome.error.ok()) << collector->outcome.error.to_string();
    return collector->outcome;
  }
  static void expect_shares(const Outcome& found, const at::Tensor& wanted) {
    ASSERT_EQ(found.attention.size(), static_cast<size_t>(kParts));
    double total = 0;
    for (int64_t part = 0; part < kParts; ++part) {
      EXPECT_NEAR(found.attention[static_cast<size_t>(part)], wanted[part].item<double>(), 1e-5)
          << "part " << part;
      total += found.attention[static_cast<size_t>(part)];
    }
    EXPECT_NEAR(total, 1, 1e-12);
  }

  support::TemporaryDirectory dir;
  support::ManualClock clock;
};

class FamilyProbeTest : public ProbeTest, public ::testing::WithParamInterface<std::string> {};

// Grouped keys, windows, biases, norms of heads; base and adapter, whose keys are others.
TEST_P(FamilyProbeTest, SharesAreThoseOfTheWholeMaps) {
  const model::Safetensors golden = dex::testing::family_golden(GetParam());
  dex::testing::write_family(dir.path(), GetParam(), dex::testing::family_tensors(golden));
  const auto served = load_serving_model(dir.path(), Dtype::kF32);
  const model::Weights weights = model::load_weights(dir.path(), served->config, {at::kFloat});
  model::Adaptation trained = dex::testing::family_adaptation(golden, served->config, weights);
  dex::testing::move_all(trained, 0.1);
  const auto document = dex::testing::documents_of(golden)[0];
  const std::vector<int32_t> tokens(document.begin(), document.end());
  const Direct direct{served->config, weights};
  const auto adapter =
      make_serving_adapter(model::make_adapter(trained), "a", std::string(64, 'a'), *served);

  const Outcome base = ask(served, tokens), adapted = ask(served, tokens, adapter);
  expect_shares(base, direct.shares(tokens, {}));
  expect_shares(adapted, direct.shares(tokens, trained));
  EXPECT_FALSE(base.attention_magnitudes);
  EXPECT_GT(std::abs(base.attention[0] - adapted.attention[0]), 1e-4);
  // Chunks of another size: the same to the bit.
  EXPECT_EQ(ask(served, tokens, adapter, {.threads = 1, .chunk_tokens = 32}).attention,
            adapted.attention);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyProbeTest,
                         ::testing::ValuesIn(dex::testing::branch_family_names()),
                         [](const auto& info) { return info.param; });

class TinyProbeTest : public ProbeTest {
 protected:
  TinyProbeTest() {
    train::testing::write_tiny_model(dir.path());
    model = load_serving_model(dir.path(), Dtype::kF32);
    for (int32_t i = 0; i < 70; ++i) tokens.push_back((i * i * 5 + i * 3 + 1) % 97);
  }
  std::shared_ptr<const ServingModel> model;
  std::vector<int32_t> tokens;
};

// method.md §3.1: uniform_map is the map A + s·λ·m·g/(i + 1).
TEST_F(TinyProbeTest, UniformMapIsASignedMap) {
  const model::Config config = train::testing::tiny_config();
  const model::Weights weights = train::testing::tiny_weights(config);
  const model::DexOptions options = testing::tiny_options()[testing::kUniformMap];
  model::Adapter source = testing::tiny_adapter(options, 700, model->weights_sha256);
  const std::vector<double> lambda = model::lambda_values(source.adaptation);
  std::vector<at::Tensor> constants;
  for (size_t layer = 0; layer < lambda.size(); ++layer) {
    const model::LayerAdaptation& adapted = source.adaptation.layers[layer];
    constants.push_back(-lambda[layer] * (adapted.mask * adapted.branch.gate).to(at::kDouble) /
                        static_cast<double>(tokens.size()));
  }
  ASSERT_GT(constants[0].abs().max().item<double>(), 1e-4);
  const auto adapter = make_serving_adapter(source, "a", std::string(64, 'a'), *model);
  const Outcome found = ask(model, tokens, adapter);
  expect_shares(found, Direct{config, weights}.shares(tokens, source.adaptation, constants));
  EXPECT_TRUE(found.attention_magnitudes);
  EXPECT_FALSE(ask(model, tokens).attention_magnitudes);
}

TEST_F(TinyProbeTest, APrefixFromTheCacheChangesNothing) {
  Engine engine(model, nullptr, {.threads = 1}, clock);
  TextModel text;
  EngineSubject subject(engine, text, nullptr, "x", 256);
  const std::vector<evaluate::Subject::Generation> items = {
      {.prompt = tokens, .max_tokens = 2, .parts = parts_of(tokens.size())},
      {.prompt = tokens, .max_tokens = 2}};
  const auto first = subject.generate(items, {}), second = subject.generate(items, {});
  EXPECT_EQ(first[0].attention, ask(model, tokens).attention);
  EXPECT_EQ(second[0].attention, first[0].attention);
  EXPECT_TRUE(first[1].attention.empty());
}

TEST_F(TinyProbeTest, APartForEachTokenOrNone) {
  Engine engine(model, nullptr, {.threads = 1}, clock);
  Request request = testing::greedy(tokens, 1);
  request.attention_parts = parts_of(tokens.size() - 1);
  const auto status = engine.submit(1, request, nullptr, std::make_shared<testing::Collector>());
  EXPECT_THAT(status.message(), HasSubstr("attention_parts must name a part for each"));
}

// Models that subtract maps, of one layer, so that its input is the embedding. By method.md §8.
class SignedProbeTest : public ProbeTest {
 protected:
  // The family's model cut to its first layer.
  void write_one_layer(const std::string& family) {
    model::NamedTensors tensors;
    for (auto& [name, tensor] : dex::testing::family_tensors(dex::testing::family_golden(family))) {
      if (!name.starts_with("model.layers.") || name.starts_with("model.layers.0."))
        tensors.emplace_back(name, tensor);
    }
    dex::testing::write_family(dir / "base", family, tensors);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(dir / "base" / "config.json"));
    config["num_hidden_layers"] = 1;
    config.erase("layer_types");
    std::ofstream(dir / "base" / "config.json") << config;
  }
  static std::vector<int32_t> some_tokens(const model::Config& config) {
    std::vector<int32_t> out;
    for (int64_t i = 0; i < 30; ++i)
      out.push_back(static_cast<int32_t>((i * i * 3 + i) % config.vocab_size));
    return out;
  }

  // Softmax rows of all query heads, [T, heads], each reading the key head that `key_of` names.
  at::Tensor rows(const model::Config& config, const model::Weights& weights,
                  const std::vector<int32_t>& tokens,
                  const std::function<int64_t(int64_t)>& key_of) {
    const model::Batch batch = model::pack({{tokens.begin(), tokens.end()}});
    const model::LayerWeights& w = weights.layers[0];
    x = weights.embed.index_select(0, batch.tokens);
    x = x * at::rsqrt(x.pow(2).mean(-1, true) + config.rms_norm_eps) * w.input_norm;
    const auto [cos, sin] = kernels::rope_angles(batch.positions, rope_frequencies(config));
    const auto heads = [&, &cos = cos, &sin = sin](const at::Tensor& weight, const at::Tensor& bias,
                                                   int64_t count) {
      at::Tensor y = x.mm(weight.t());
      if (bias.defined()) y = y + bias;
      return kernels::rope_plain(y.view({x.size(0), count, config.head_dim}), cos, sin);
    };
    const at::Tensor q = heads(w.q, w.q_bias, config.query_heads()),
                     k = heads(w.k, w.k_bias, config.key_heads());
    std::vector<at::Tensor> out;
    for (int64_t h = 0; h < config.query_heads(); ++h) {
      out.push_back(last_row(q.slice(1, h, h + 1), k.slice(1, key_of(h), key_of(h) + 1),
                             config.sliding_window));
    }
    return at::cat(out, 1);
  }
  static double lambda_of(const model::LayerWeights& w) {
    const auto product = [](const at::Tensor& a, const at::Tensor& b) {
      return std::exp((a * b).sum().item<double>());
    };
    return product(w.lambda_q1, w.lambda_k1) - product(w.lambda_q2, w.lambda_k2) + 0.2;
  }

  at::Tensor x;  // the first layer's normed input, [T, D]
};

TEST_F(SignedProbeTest, DiffLlamaPairsHeadsHalfTheirNumberApart) {
  for (const std::string& family : dex::testing::differential_family_names()) {
    write_one_layer(family);
    const auto served = load_serving_model(dir / "base", Dtype::kF32);
    const model::Config& config = served->config;
    const model::Weights weights = model::load_weights(dir / "base", config, {at::kFloat});
    const auto tokens = some_tokens(config);
    const int64_t pairs = config.heads / 2, group = config.heads / config.kv_heads;
    const at::Tensor all =
        rows(config, weights, tokens, [&](int64_t head) { return head / group; });
    const at::Tensor map =
        all.narrow(1, 0, pairs) - lambda_of(weights.layers[0]) * all.narrow(1, pairs, pairs);
    const Outcome found = ask(served, tokens);
    expect_shares(found, shares_of(map, parts_of(tokens.size())));
    EXPECT_TRUE(found.attention_magnitudes);
  }
}

TEST_F(SignedProbeTest, SecondMapsPairNeighbours) {
  using enum model::SecondMapOptions::Version;
  for (const char* family : {"llama3", "qwen2"}) {
    for (const auto version : {kV1, kV2}) {
      const dex::testing::SecondMapCase which{family, version};
      write_one_layer(family);
      const auto made = dex::testing::second_map_model(dir / "base", which);
      const std::filesystem::path folder = dir / which.name();
      dex::testing::write_second_map(dir / "base", folder, which, made);
      const auto served = load_serving_model(folder, Dtype::kF32);
      const auto tokens = some_tokens(made.config);
      const int64_t group = made.config.heads / made.config.kv_heads;
      const at::Tensor all = rows(made.config, made.weights, tokens, [&](int64_t head) {
        const int64_t key = head / 2 / group;  // that the pair reads
        return version == kV1 ? 2 * key + head % 2 : key;
      });
      const model::LayerWeights& w = made.weights.layers[0];
      const at::Tensor lambda = version == kV1 ? at::full({1}, lambda_of(w), at::kDouble)
                                               : w.lambda_proj.mv(x[-1]).sigmoid().to(at::kDouble);
      const at::Tensor map = all.slice(1, 0, {}, 2) - lambda * all.slice(1, 1, {}, 2);
      expect_shares(ask(served, tokens), shares_of(map, parts_of(tokens.size())));
    }
  }
}

}  // namespace
}  // namespace dex::serve
