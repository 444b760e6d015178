#include "worker/model/adapter.h"
#include "tests/support/content_of.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "services/base/sha256.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

namespace fs = std::filesystem;
const std::string kBaseHash(64, 'a'), kOtherHash(64, 'b');
const char* const kTensors = "adapter_model.safetensors";
const char* const kConfig = "adapter_config.json";

class AdapterTest : public ::testing::Test {
 protected:
  support::TemporaryDirectory dir;
  fs::path path = dir / "adapter";
  Config config = testing::tiny_config();
  Weights weights = testing::tiny_weights(config);
  BaseIdentity base{config, kBaseHash};

  Adapter make(const DexOptions& options) {
    Adapter adapter = make_adapter(testing::moved_adaptation(options, config, weights));
    adapter.base_model_name_or_path = "tiny";
    adapter.base_weights_sha256 = kBaseHash;
    adapter.tokenizer_sha256 = kOtherHash;
    adapter.job_id = "ftjob-1";
    adapter.metrics = R"({"valid_loss":1.5})";
    return adapter;
  }

  std::string refusal() {
    try {
      load_adapter(path, base);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }

  // Rewrites checksums.json, so that a test reaches the check behind it.
  void reseal() {
    std::ofstream(path / "checksums.json")
        << nlohmann::json{{kTensors, *base::sha256_file(path / kTensors)},
                          {kConfig, *base::sha256_file(path / kConfig)}};
  }
  void edit_config(const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json json = nlohmann::json::parse(support::content_of(path / kConfig));
    edit(json);
    std::ofstream(path / kConfig) << json.dump();
    reseal();
  }
  void edit_tensors(const std::function<void(NamedTensors&)>& edit) {
    NamedTensors tensors;
    const Safetensors file = Safetensors::open(path / kTensors, Safetensors::Access::kRead);
    for (const auto& [name, info] : file.tensors())
      tensors.emplace_back(name, file.tensor(name).clone());
    edit(tensors);
    write_safetensors(path / kTensors, tensors);
    reseal();
  }
};

// Also the order of §10 item 6: what was trained is what is read.
TEST_F(AdapterTest, ReadsWhatItWritesForEveryOption) {
  int number = 0;
  const Batch batch = pack({{3, 14, 15, 9, 26, 5}});
  std::vector<DexOptions> list = testing::all_options();
  list.push_back(list[0]);
  list.back().train = Train::kDexOnly;
  list.push_back(list[0]);
  list.back().train = Train::kKvoOnly;
  list.back().form = Form::kNone;
  for (const DexOptions& options : list) {
    path = dir / std::to_string(number++);
    const Adapter written = make(options);
    write_adapter(path, written);
    const Adapter read = load_adapter(path, base);
    EXPECT_EQ(read.selected_heads, written.selected_heads);
    EXPECT_EQ(read.lambda, written.lambda);  // every digit
    EXPECT_EQ(read.job_id, "ftjob-1");
    EXPECT_EQ(nlohmann::json::parse(read.metrics)["valid_loss"], 1.5);
    EXPECT_EQ(name(read.adaptation.options.form), name(options.form));
    EXPECT_EQ(read.adaptation.options.lambda.end, options.has_branch() ? options.lambda.end : 0);
    const Llama llama(config, weights);
    const at::Tensor before = llama.logits(batch, written.adaptation),
                     after = llama.logits(batch, read.adaptation);
    testing::expect_close(after, before, 1e-6, testing::label(options).c_str());
    EXPECT_FALSE(fs::exists(path.string() + ".tmp"));
  }
}

TEST_F(AdapterTest, KeysAreThoseOfTheArtefact) {
  write_adapter(path, make(testing::all_options()[0]));
  const Safetensors file = Safetensors::open(path / kTensors, Safetensors::Access::kRead);
  const std::string prefix = "base_model.model.model.layers.2.self_attn.";
  EXPECT_EQ(file.tensors().size(), 15U);
  EXPECT_EQ(file.tensor(prefix + "dex.w_d").sizes(), (at::IntArrayRef{6, 6}));
  EXPECT_EQ(file.tensor(prefix + "dex.lambda_learn").sizes(), (at::IntArrayRef{1}));
  EXPECT_EQ(file.tensor(prefix + "o_proj.weight").sizes(), (at::IntArrayRef{20, 24}));
  const auto json = nlohmann::json::parse(support::content_of(path / kConfig));
  EXPECT_EQ(json["peft_type"], "DEX");
  EXPECT_EQ(json["train"], "kvo+dex");
  EXPECT_EQ(json["lambda_schedule"]["init"], "depth");
}

// A floor is part of what the adapter computes: heads that are not listed have it.
TEST_F(AdapterTest, KeepsTheSoftFloor) {
  DexOptions options = testing::all_options()[0];
  options.soft_floor = 0.3;
  const Adapter written = make(options);
  write_adapter(path, written);
  EXPECT_EQ(nlohmann::json::parse(support::content_of(path / kConfig))["soft_floor"], 0.3);
  const Adapter read = load_adapter(path, base);
  EXPECT_EQ(read.selected_heads, testing::some_heads(config));
  for (size_t i = 0; i < read.adaptation.layers.size(); ++i) {
    EXPECT_TRUE(read.adaptation.layers[i].mask.equal(written.adaptation.layers[i].mask));
  }
  EXPECT_EQ(read.adaptation.layers[2].mask[0].item<float>(), 0.3F);
}

// Neither tensors nor a floor below first_layer: there the model is the base, bit for bit.
TEST_F(AdapterTest, LayersBelowTheFirstAreTheBases) {
  const Batch batch = pack({{3, 14, 15, 9, 26, 5}});
  const Llama llama(config, weights);
  const at::Tensor start = llama.embedded(batch, {}),
                   of_base = llama.block(0, start, batch, {}, {});
  for (const Train train : {Train::kKvoDex, Train::kDexOnly, Train::kLoraDex, Train::kKvoOnly,
                            Train::kAdapter, Train::kLora}) {
    path = dir / std::string(name(train));
    DexOptions options = testing::all_options()[0];
    options.train = train;
    options.first_layer = 1;
    options.soft_floor = 0.3;
    if (!parts_of(train).branch) options.form = Form::kNone;
    const Adapter written = make(options);
    write_adapter(path, written);
    const Safetensors file = Safetensors::open(path / kTensors, Safetensors::Access::kRead);
    EXPECT_GT(file.tensors().size(), 0U);
    for (const auto& [key, info] : file.tensors())
      EXPECT_EQ(key.find(".layers.0."), key.npos) << key;
    const Adapter read = load_adapter(path, base);
    EXPECT_EQ(read.adaptation.options.first_layer, 1);
    EXPECT_EQ(first_changed_layer(read.adaptation), 1) << path;
    EXPECT_TRUE(read.selected_heads[0].empty());
    EXPECT_TRUE(llama.block(0, start, batch, read.adaptation, {}).equal(of_base)) << path;
    EXPECT_FALSE(llama.block(1, of_base, batch, read.adaptation, {})
                     .equal(llama.block(1, of_base, batch, {}, {})))
        << path;
    testing::expect_close(llama.logits(batch, read.adaptation),
                          llama.logits(batch, written.adaptation), 1e-6, "read back");
    if (!not_foldable(options).empty()) continue;
    testing::expect_close(Llama(config, folded_weights(weights, read.adaptation)).logits(batch),
                          llama.logits(batch, read.adaptation), 1e-4, "folded");
  }
  // PEFT's name for it.
  const auto json = nlohmann::json::parse(support::content_of(dir / "lora" / kConfig));
  EXPECT_EQ(json["layers_to_transform"].get<std::vector<int>>(), (std::vector<int>{1, 2}));
}

TEST_F(AdapterTest, AFirstLayerThatLiesIsRefused) {
  DexOptions options = testing::all_options()[0];
  options.first_layer = 1;
  write_adapter(path, make(options));
  edit_config([](auto& json) { json["first_layer"] = 3; });
  EXPECT_NE(refusal().find("\"first_layer\""), std::string::npos) << refusal();
  edit_config([](auto& json) { json["first_layer"] = 2; });  // layer 1 has heads
  EXPECT_NE(refusal().find("no heads below first_layer 2"), std::string::npos) << refusal();
  edit_config([](auto& json) { json.erase("first_layer"); });
  EXPECT_NE(refusal().find("layers.0.self_attn.k_proj.weight"), std::string::npos) << refusal();
}

// Adapters written before these options existed have none of their keys.
TEST_F(AdapterTest, ReadsWhatOlderVersionsWrote) {
  DexOptions options = testing::option(Form::kHeadMean, Projection::kBottleneck);
  write_adapter(path, make(options));
  const auto json = nlohmann::json::parse(support::content_of(path / kConfig));
  EXPECT_EQ(json["bottleneck_activation"], "none");  // written since the first version
  EXPECT_FALSE(json.contains("soft_floor"));
  EXPECT_EQ(load_adapter(path, base).adaptation.options.soft_floor, 0);
}

TEST_F(AdapterTest, StoresInAShorterTypeWhenAsked) {
  Adapter adapter = make(testing::option(Form::kHeadMean, Projection::kShared));  // has gates
  adapter.dtype = at::kBFloat16;
  write_adapter(path, adapter);
  const Adapter stored = load_adapter(path, base, {.widen = false}),
                wide = load_adapter(path, base);
  EXPECT_EQ(stored.adaptation.layers[0].k.scalar_type(), at::kBFloat16);
  EXPECT_EQ(stored.adaptation.layers[0].branch.gate.scalar_type(), at::kFloat);
  EXPECT_TRUE(
      stored.adaptation.layers[0].branch.gate.equal(adapter.adaptation.layers[0].branch.gate));
  EXPECT_EQ(wide.adaptation.layers[0].k.scalar_type(), at::kFloat);
  EXPECT_TRUE(wide.adaptation.layers[0].k.equal(stored.adaptation.layers[0].k.to(at::kFloat)));
}

TEST_F(AdapterTest, AnAdapterOfAnotherBaseIsRefused) {
  Adapter adapter = make(testing::all_options()[0]);
  adapter.base_weights_sha256 = kOtherHash;
  write_adapter(path, adapter);
  EXPECT_EQ(refusal(), "[adapter] " + (path / kConfig).string() +
                           ": key \"base_weights_sha256\", expected " + kBaseHash +
                           " (this base model), found " + kOtherHash +
                           ": the adapter was made for another base (\"tiny\")");
}

TEST_F(AdapterTest, DamageIsFound) {
  write_adapter(path, make(testing::all_options()[0]));
  const std::string tensors = support::content_of(path / kTensors),
                    text = support::content_of(path / kConfig),
                    sums = support::content_of(path / "checksums.json");

  std::ofstream(path / kTensors, std::ios::binary)
      << tensors.substr(0, tensors.size() - 100);  // truncated
  EXPECT_NE(refusal().find(kTensors), std::string::npos) << refusal();
  std::string flipped = tensors;
  flipped.back() ^= 1;
  std::ofstream(path / kTensors, std::ios::binary) << flipped;
  EXPECT_NE(refusal().find("SHA-256, expected"), std::string::npos) << refusal();
  std::ofstream(path / kTensors, std::ios::binary) << tensors;
  EXPECT_EQ(refusal(), "accepted");

  std::ofstream(path / kConfig) << text << " ";
  EXPECT_NE(refusal().find("adapter_config.json: SHA-256"), std::string::npos) << refusal();
  std::ofstream(path / kConfig) << text;
  fs::remove(path / "checksums.json");
  EXPECT_NE(refusal().find("not a finished adapter"), std::string::npos) << refusal();
  std::ofstream(path / "checksums.json") << sums;
  fs::remove(path / kTensors);
  EXPECT_NE(refusal().find(kTensors), std::string::npos) << refusal();
}

TEST_F(AdapterTest, LyingConfigsAreRefusedByKey) {
  const std::vector<std::pair<std::string, std::function<void(nlohmann::json&)>>> lies{
      {"peft_type", [](auto& j) { j["peft_type"] = "IA3"; }},
      // Read as one of PEFT's, which has no such key.
      {"base_weights_sha256", [](auto& j) { j["peft_type"] = "LORA"; }},
      {"dex_format_version", [](auto& j) { j["dex_format_version"] = 2; }},
      {"form", [](auto& j) { j["form"] = "sequence_mean"; }},
      {"projection", [](auto& j) { j["projection"] = "global"; }},
      {"projection", [](auto& j) { j["form"] = "uniform_map"; }},  // which has none
      {"width_ratio", [](auto& j) { j["width_ratio"] = 1.5; }},    // without a bottleneck
      {"bottleneck_scope", [](auto& j) { j["projection"] = "bottleneck"; }},
      {"bottleneck_activation",
       [](auto& j) {
         j["projection"] = "bottleneck";
         j["bottleneck_scope"] = "shared";
         j["bottleneck_activation"] = "relu";
       }},
      {"width_ratio",
       [](auto& j) {
         j["projection"] = "bottleneck";
         j["bottleneck_scope"] = "shared";
         j["bottleneck_activation"] = "silu";
         j["width_ratio"] = 0;
       }},
      {"soft_floor", [](auto& j) { j["soft_floor"] = 0.6; }},
      {"sign", [](auto& j) { j.erase("sign"); }},
      {"train", [](auto& j) { j["train"] = "kvo_only"; }},
      {"lambda",
       [](auto& j) {
         j["lambda"] = {0.1, 0.2};
       }},
      {"lambda", [](auto& j) { j["lambda"][1] = nullptr; }},  // what JSON makes of NaN
      {"lambda", [](auto& j) { j["lambda"][1] = "inf"; }},
      {"selected_heads", [](auto& j) { j["selected_heads"][0] = {4}; }},
      {"selected_heads", [](auto& j) { j["selected_heads"][0] = {-1}; }},
      {"selected_heads",
       [](auto& j) {
         j["selected_heads"][0] = {1, 1};
       }},
      {"selected_heads", [](auto& j) { j["selected_heads"][0] = {0.5}; }},
      {"selected_heads", [](auto& j) { j["selected_heads"].erase(0); }},
      {"lambda_schedule", [](auto& j) { j["lambda_schedule"] = "paper"; }},
      {"anneal_steps", [](auto& j) { j["lambda_schedule"]["anneal_steps"] = -1; }},
      {"dtype", [](auto& j) { j["dtype"] = "int8"; }},
      {"base_weights_sha256", [](auto& j) { j["base_weights_sha256"] = "abc"; }},
      {"metrics", [](auto& j) { j["metrics"] = 3; }},
      {"surprise", [](auto& j) { j["surprise"] = 3; }},
  };
  write_adapter(path, make(testing::all_options()[0]));
  const std::string text = support::content_of(path / kConfig);
  for (const auto& [key, lie] : lies) {
    std::ofstream(path / kConfig) << text;
    edit_config(lie);
    EXPECT_NE(refusal().find("key \"" + key + "\""), std::string::npos) << key << ": " << refusal();
  }
  std::ofstream(path / kConfig) << R"({"lambda": [1e999]})";
  reseal();
  EXPECT_NE(refusal().find(kConfig), std::string::npos) << refusal();
}

TEST_F(AdapterTest, LyingTensorsAreRefusedByName) {
  const std::string key = "base_model.model.model.layers.0.self_attn.dex.w_d";
  const auto entry = [&](NamedTensors& tensors) -> at::Tensor& {
    for (auto& [name, tensor] : tensors) {
      if (name == key) return tensor;
    }
    throw std::runtime_error("no " + key);
  };
  const std::vector<std::pair<std::string, std::function<void(NamedTensors&)>>> lies{
      {"expected Float [6, 6], found Float [3, 12]",
       [&](auto& t) {
         entry(t) = at::ones({3, 12});
       }},
      {"expected Float [6, 6], found Double [6, 6]",
       [&](auto& t) {
         entry(t) = at::ones({6, 6}, at::kDouble);
       }},
      {"expected finite values, found nan at index 7",
       [&](auto& t) { entry(t)[1][1] = std::numeric_limits<float>::quiet_NaN(); }},
      {"expected finite values, found -inf",
       [&](auto& t) { entry(t)[0][0] = -std::numeric_limits<float>::infinity(); }},
      {"expected tensor \"" + key + "\", found none",
       [&](auto& t) { std::erase_if(t, [&](const auto& e) { return e.first == key; }); }},
      {"tensor \"surprise\", expected no such tensor",
       [&](auto& t) { t.emplace_back("surprise", at::ones({1})); }},
  };
  for (const auto& [expected, lie] : lies) {
    fs::remove_all(path);
    write_adapter(path, make(testing::all_options()[0]));
    edit_tensors(lie);
    const std::string text = refusal();
    EXPECT_NE(text.find(expected), std::string::npos)
        << "expected: " << expected << "\nfound: " << text;
    EXPECT_NE(text.find(kTensors), std::string::npos) << text;
  }
}

TEST_F(AdapterTest, ALargeFileIsRefusedBeforeItIsRead) {
  write_adapter(path, make(testing::all_options()[0]));
  fs::resize_file(path / kTensors, uint64_t{1} << 40);  // sparse
  EXPECT_NE(refusal().find("expected at most"), std::string::npos) << refusal();
}

TEST_F(AdapterTest, WritingNeverReplacesAndRampsAreNotPublished) {
  write_adapter(path, make(testing::all_options()[0]));
  EXPECT_THROW(write_adapter(path, make(testing::all_options()[0])), std::runtime_error);
  EXPECT_EQ(refusal(), "accepted");
  Adaptation ramp = testing::moved_adaptation(testing::all_options()[0], config, weights);
  ramp.layers[1].mask[2] = 0.5;
  EXPECT_THROW(make_adapter(ramp), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
