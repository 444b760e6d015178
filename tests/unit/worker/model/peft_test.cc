// LoRA artefacts: PEFT's own folders (tests/data/lora, with the script that made them by PEFT),
// ours, and what neither may hold. Bottleneck adapters and LoRA beside a branch in our layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::content_of;
using ::testing::HasSubstr;

const fs::path kData = support::source_dir() / "tests/data";
const std::string kHash(64, 'a');

class PeftTest : public ::testing::Test {
 protected:
  PeftTest() { fs::create_directories(dir / "edited"); }

  std::string refusal(const fs::path& path, bool peft_folder = true) {
    try {
      load_adapter(path, base, {.peft_folder = peft_folder});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
  // PEFT's folder with another config.
  fs::path edited(const std::string& name, const std::function<void(json&)>& edit) {
    const fs::path path = dir / "edited";
    json config = json::parse(content_of(kData / "lora" / name / "adapter_config.json"));
    edit(config);
    std::ofstream(path / "adapter_config.json") << config.dump();
    fs::copy_file(kData / "lora" / name / "adapter_model.safetensors",
                  path / "adapter_model.safetensors", fs::copy_options::overwrite_existing);
    return path;
  }
  fs::path edited_tensors(const std::function<void(NamedTensors&)>& edit) {
    const fs::path path = edited("attention", [](json&) {});
    NamedTensors tensors;
    const auto file = Safetensors::open(kData / "lora/attention/adapter_model.safetensors",
                                        Safetensors::Access::kRead);
    for (const auto& [name, info] : file.tensors())
      tensors.emplace_back(name, file.tensor(name).clone());
    edit(tensors);
    write_safetensors(path / "adapter_model.safetensors", tensors);
    return path;
  }

  support::TemporaryDirectory dir;
  Config config = load_config(kData / "train/model");
  Weights weights = load_weights(kData / "train/model", config, {at::kFloat, true});
  BaseIdentity base{config, kHash};
  json golden = json::parse(content_of(kData / "lora/golden.json"));
};

// method.md §10 item 16, PEFT's half: what PEFT saved gives PEFT's logits here, merged as well.
TEST_F(PeftTest, FoldersOfPeftGiveItsLogits) {
  const Llama llama(config, weights);
  const Batch batch = pack({golden["tokens"].get<std::vector<int64_t>>()});
  const at::Tensor plain = llama.logits(batch);
  for (const auto& [name, expected] : golden["cases"].items()) {
    const Adapter adapter = load_adapter(kData / "lora" / name, base, {.peft_folder = true});
    const auto last = expected["last"].get<std::vector<double>>();
    const Weights folded = folded_weights(weights, adapter.adaptation);
    for (const at::Tensor& logits :
         {llama.logits(batch, adapter.adaptation), Llama(config, folded).logits(batch)}) {
      EXPECT_NEAR(logits.to(at::kDouble).pow(2).sum().item<double>(),
                  expected["squares"].get<double>(), 1e-5 * expected["squares"].get<double>())
          << name;
      for (size_t v = 0; v < last.size(); ++v)
        ASSERT_NEAR(logits[-1][static_cast<int64_t>(v)].item<double>(), last[v], 2e-5) << name;
      EXPECT_GT((logits - plain).abs().max().item<double>(), 1e-2) << name;
    }
  }
}

// The other half: with the same numbers we write the tensors that PEFT writes, byte for byte, and a
// config with PEFT's keys and values. (tests/integration/peft loads one in PEFT itself.)
TEST_F(PeftTest, WritesWhatPeftWrites) {
  for (const char* name : {"attention", "all_rslora"}) {
    Adapter adapter = load_adapter(kData / "lora" / name, base, {.peft_folder = true});
    adapter.base_model_name_or_path = "tiny";
    adapter.base_weights_sha256 = kHash;
    write_adapter(dir / name, adapter);
    const auto ours = Safetensors::open(dir / name / "adapter_model.safetensors",
                                        Safetensors::Access::kRead),
               theirs = Safetensors::open(kData / "lora" / name / "adapter_model.safetensors",
                                          Safetensors::Access::kRead);
    ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
    for (const auto& [key, info] : theirs.tensors()) {
      ASSERT_TRUE(ours.has(key)) << key;
      EXPECT_TRUE(ours.tensor(key).equal(theirs.tensor(key))) << key;
    }
    const json written = json::parse(content_of(dir / name / "adapter_config.json")),
               expected = json::parse(content_of(kData / "lora" / name / "adapter_config.json"));
    for (const auto& [key, value] : written.items()) {
      ASSERT_TRUE(expected.contains(key)) << key;
      if (key == "lora_dropout") continue;  // 0 here: what was read drops nothing
      if (key == "target_modules") {        // a set to PEFT
        EXPECT_THAT(
            value.get<std::vector<std::string>>(),
            ::testing::UnorderedElementsAreArray(expected[key].get<std::vector<std::string>>()));
      } else {
        EXPECT_EQ(value, expected[key]) << key;
      }
    }
    EXPECT_EQ(load_adapter(dir / name, base).base_weights_sha256, kHash);
  }
}

TEST_F(PeftTest, VariantsAreRefusedByName) {
  const std::vector<std::pair<std::string, json>> variants{
      {"use_dora", true},
      {"modules_to_save", json::array({"lm_head"})},
      {"lora_bias", true},
      {"fan_in_fan_out", true},
      {"bias", "all"},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "olora"},
      {"use_qalora", true},
      {"layer_replication", json::array({json::array({0, 2})})},
      {"trainable_token_indices", json::array({1, 2})},
      {"target_parameters", json::array({"experts.weight"})},
      {"alora_invocation_tokens", json::array({5})},
      {"a_key_of_tomorrow", 3},
      {"target_modules", ".*q_proj"},
      {"target_modules", json::array({"q_proj", "lm_head"})},
      {"rank_pattern", json{{"q_(proj|norm)", 3}}},
      {"layers_to_transform", json::array({0, 7})},
      {"r", 0},
      {"task_type", "SEQ_CLS"},
  };
  for (const auto& [key, value] : variants) {
    const std::string text =
        refusal(edited("attention", [&](json& config) { config[key] = value; }));
    EXPECT_THAT(text, HasSubstr("key \"" + key + "\"")) << value;
  }
  // Off is off, known or not.
  EXPECT_EQ(refusal(edited("attention",
                           [](json& config) {
                             config["a_key_of_tomorrow"] = nullptr;
                             config["another"] = false;
                             config["use_dora"] = false;
                             config.erase("rank_pattern");
                           })),
            "accepted");
}

TEST_F(PeftTest, TensorsMustBeThoseOfTheConfig) {
  const std::string key = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight";
  const auto entry = [&](NamedTensors& tensors) -> at::Tensor& {
    for (auto& [name, tensor] : tensors) {
      if (name == key) return tensor;
    }
    throw std::runtime_error("no " + key);
  };
  EXPECT_THAT(refusal(edited_tensors([&](auto& t) { entry(t)[0][1] = std::nan(""); })),
              ::testing::AllOf(HasSubstr(key), HasSubstr("finite")));
  EXPECT_THAT(refusal(edited_tensors([&](auto& t) {
                entry(t) = at::ones({16, 5});
              })),
              ::testing::AllOf(HasSubstr(key), HasSubstr("expected Float [16, 4]")));
  EXPECT_THAT(refusal(edited_tensors([&](auto& t) {
                entry(t) = at::ones({16, 4}, at::kDouble);
              })),
              HasSubstr("found Double"));
  EXPECT_THAT(refusal(edited_tensors([&](auto& t) {
                std::erase_if(t, [&](const auto& e) { return e.first == key; });
              })),
              HasSubstr("expected tensor \"" + key + "\", found none"));
  EXPECT_THAT(refusal(edited_tensors([&](auto& t) { t.emplace_back("surprise", at::ones({1})); })),
              HasSubstr("\"surprise\", expected no such tensor"));
  // Fewer targets in the config than tensors in the file.
  EXPECT_THAT(
      refusal(edited("attention",
                     [](json& config) { config["target_modules"] = json::array({"q_proj"}); })),
      HasSubstr("expected no such tensor"));
}

TEST_F(PeftTest, OnlyWhereItIsAskedForAndNeverAWholeModel) {
  EXPECT_THAT(refusal(kData / "lora/attention", false), HasSubstr("not a finished adapter"));
  EXPECT_NE(refusal(kData / "train/model"), "accepted");
}

DexOptions options_for(Train train) {
  DexOptions options;
  options.train = train;
  options.form = parts_of(train).branch ? Form::kPaper : Form::kNone;
  options.lora = {.r = 3, .alpha = 5, .targets = {Linear::kK, Linear::kV, Linear::kO}};
  options.adapter = {.size = 5, .activation = AdapterActivation::kGelu};
  return options;
}

class BaselineArtefactTest : public ::testing::TestWithParam<Train> {
 protected:
  support::TemporaryDirectory dir;
  fs::path path = dir / "adapter";
  Config config = testing::tiny_config();
  Weights weights = testing::tiny_weights(config);
  BaseIdentity base{config, kHash};
  Adapter written() {
    Adapter adapter =
        make_adapter(testing::moved_adaptation(options_for(GetParam()), config, weights));
    adapter.base_model_name_or_path = "tiny";
    adapter.base_weights_sha256 = kHash;
    adapter.job_id = "ftjob-1";
    write_adapter(path, adapter);
    return adapter;
  }
};

TEST_P(BaselineArtefactTest, ReadsWhatItWrites) {
  const Adapter before = written(), after = load_adapter(path, base);
  EXPECT_EQ(after.adaptation.options.train, GetParam());
  EXPECT_EQ(after.job_id, "ftjob-1");
  const Llama llama(config, weights);
  const Batch batch = pack({{3, 14, 15, 9, 26, 5}});
  testing::expect_close(llama.logits(batch, after.adaptation),
                        llama.logits(batch, before.adaptation), 1e-6);
  EXPECT_THROW(load_adapter(path, {config, std::string(64, 'b')}), std::runtime_error);
}

TEST_P(BaselineArtefactTest, AMissingTensorIsNamed) {
  written();
  const fs::path file = path / "adapter_model.safetensors";
  NamedTensors tensors;
  const auto stored = Safetensors::open(file, Safetensors::Access::kRead);
  for (const auto& [name, info] : stored.tensors())
    tensors.emplace_back(name, stored.tensor(name).clone());
  const std::string lost = tensors.back().first;
  tensors.pop_back();
  fs::remove(file);
  write_safetensors(file, tensors);
  json sums = json::parse(content_of(path / "checksums.json"));
  sums["adapter_model.safetensors"] = *base::sha256_file(file);
  std::ofstream(path / "checksums.json") << sums.dump();
  EXPECT_THAT([&] { load_adapter(path, base); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr(lost)));
}

INSTANTIATE_TEST_SUITE_P(Trains, BaselineArtefactTest,
                         ::testing::Values(Train::kLora, Train::kAdapter, Train::kLoraDex),
                         [](const auto& info) {
                           return info.param == Train::kLoraDex ? std::string("lora_dex")
                                                                : std::string(name(info.param));
                         });

// full: a checkpoint that loads as a base model, and that no engine takes for an adapter.
TEST(CheckpointArtefactTest, IsAModelAndNoAdapter) {
  const support::TemporaryDirectory dir;
  const fs::path source = kData / "train/model";
  const Config config = load_config(source);
  const Weights weights = load_weights(source, config, {at::kFloat, true});
  const Batch batch = pack({{3, 14, 15, 9, 26, 5}});
  for (const Train train : {Train::kFull, Train::kFullDex}) {
    DexOptions options = options_for(train);
    options.lambda.schedule = Schedule::kConstant;
    options.lambda.value = 0.3;
    Adaptation adapted = initial_adaptation(options, config, weights, {{0, 3}, {1}}, 5);
    uint64_t stream = 900;
    for (const Trainable& entry : trainables(adapted))
      entry.tensor->add_(testing::random_tensor(entry.tensor->sizes(), ++stream) * 0.1);
    Adapter adapter = make_adapter(adapted);
    adapter.base_weights_sha256 = kHash;
    const fs::path out = dir / std::string(name(train));
    EXPECT_THROW(write_adapter(dir / "wrong", adapter), std::runtime_error);
    write_checkpoint(out, source, weights, adapter);
    const Weights loaded = load_weights(out, load_config(out), {at::kFloat, true});
    testing::expect_close(Llama(config, loaded).logits(batch),
                          Llama(config, weights).logits(batch, adapted), 1e-4);
    const json sums = json::parse(content_of(out / "checksums.json"));
    EXPECT_EQ(sums.at("model.safetensors"), *base::sha256_file(out / "model.safetensors"));
    EXPECT_EQ(json::parse(content_of(out / "provenance.json")).at("train"), name(train));
    EXPECT_THAT(
        [&] {
          load_adapter(out, {config, kHash});
        },
        ::testing::ThrowsMessage<std::runtime_error>(
            HasSubstr("is a whole model (class MODEL), not an adapter")));
  }
}

}  // namespace
}  // namespace dex::model
