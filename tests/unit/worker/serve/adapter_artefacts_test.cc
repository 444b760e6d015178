// Adapters that are taken in, held against the loader that serves them; and folded models against
// the branch.
#include "worker/serve/adapter_artefacts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/llama.h"

namespace dex::serve {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class AdapterArtefactsTest : public ::testing::Test {
 protected:
  AdapterArtefactsTest() {
    train::testing::write_tiny_model(dir / "model");
    base_sha256 = model::base_weights_sha256(dir / "model");
  }

  fs::path written(const std::string& name, const model::Adapter& adapter) {
    model::write_adapter(dir / name, adapter);
    return dir / name;
  }
  fs::path written(const std::string& name, int options = testing::kPaper) {
    return written(name,
                   testing::tiny_adapter(testing::tiny_options()[static_cast<size_t>(options)], 5,
                                         base_sha256));
  }
  ImportedAdapter imported(const fs::path& uploaded, const fs::path& model) {
    return import_adapter({.model = model,
                           .model_name = "tiny",
                           .weights_sha256 = "",
                           .uploaded = uploaded,
                           .out = dir / "final"});
  }
  // What is wrong with it; nothing is published then.
  std::string refusal(const fs::path& uploaded) {
    try {
      imported(uploaded, dir / "model");
    } catch (const ArtefactFailure& failure) {
      EXPECT_EQ(failure.kind(), ArtefactFailure::Kind::kAdapter) << failure.what();
      EXPECT_FALSE(fs::exists(dir / "final"));
      EXPECT_THAT(failure.what(), Not(HasSubstr(dir.path().string()))) << "no path of ours";
      return failure.what();
    }
    return "accepted";
  }
  AdapterExportWork exported(const fs::path& adapter) {
    return {.model = dir / "model",
            .weights_sha256 = base_sha256,
            .adapter = adapter,
            .content_sha256 = base::sha256_file(adapter / "checksums.json").value(),
            .dtype = "f32",
            .out = dir / "folded"};
  }

  support::TemporaryDirectory dir;
  std::string base_sha256;
};

std::string bytes_of(const fs::path& path) {
  return base::read_file(path, 1 << 24).value();
}

TEST_F(AdapterArtefactsTest, OneOfOursIsPublishedByteForByte) {
  const auto uploaded = written("uploaded");
  const auto found = imported(uploaded, dir / "model");
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "checksums.json"})
    EXPECT_EQ(bytes_of(dir / "final" / name), bytes_of(uploaded / name)) << name;
  EXPECT_EQ(found.options.train, model::Train::kKvoDex);
  EXPECT_EQ(found.artifact_class, "KVO");
  EXPECT_EQ(found.lambda, (std::vector<double>{0.4, 0.4}));
  EXPECT_TRUE(found.regular);
  EXPECT_EQ(found.base_weights_sha256, base_sha256);
}

TEST_F(AdapterArtefactsTest, EveryKindOfAdapterIsTaken) {
  const auto options = testing::tiny_options();
  for (size_t i = 0; i < options.size(); ++i) {
    fs::remove_all(dir / "final");
    const auto found =
        imported(written("a" + std::to_string(i), static_cast<int>(i)), dir / "model");
    EXPECT_EQ(found.options.train, options[i].train) << i;
    EXPECT_EQ(found.lambda.empty(), !options[i].has_branch()) << i;
  }
}

// Folders that the real PEFT wrote (tests/data/lora).
TEST_F(AdapterArtefactsTest, PeftsFoldersBecomeArtefactsBoundToTheBase) {
  const fs::path data = support::source_dir() / "tests/data";
  const fs::path base = data / "train/model";
  for (const char* name : {"attention", "all_rslora", "one_layer_bf16", "patterns"}) {
    fs::remove_all(dir / "final");
    const auto found = imported(data / "lora" / name, base);
    EXPECT_EQ(found.options.train, model::Train::kLora);
    EXPECT_EQ(found.regular, std::string(name) != "patterns") << name;
    EXPECT_EQ(found.artifact_class, "LIGHT");
    EXPECT_TRUE(found.lambda.empty());
    EXPECT_EQ(bytes_of(dir / "final/adapter_model.safetensors"),
              bytes_of(data / "lora" / name / "adapter_model.safetensors"));
    const model::Config config = model::load_config(base);
    const std::string sha256 = model::base_weights_sha256(base);
    EXPECT_NO_THROW(model::load_adapter(dir / "final", {config, sha256})) << name;
    EXPECT_ANY_THROW(model::load_adapter(dir / "final", {config, std::string(64, 'b')})) << name;
  }
  EXPECT_EQ(model::load_adapter(dir / "final",
                                {model::load_config(base), model::base_weights_sha256(base)})
                .base_model_name_or_path,
            "tiny");
}

TEST_F(AdapterArtefactsTest, WhatDoesNotFitTheBaseIsRefusedByName) {
  const auto foreign = testing::tiny_adapter(testing::tiny_options()[0], 5, std::string(64, 'b'));
  EXPECT_THAT(refusal(written("foreign", foreign)), HasSubstr("made for another base"));
  // PEFT's name no base: shapes decide.
  fs::copy(support::source_dir() / "tests/data/lora/attention", dir / "peft");
  auto config = nlohmann::json::parse(bytes_of(dir / "peft/adapter_config.json"));
  config["r"] = 5;
  std::ofstream(dir / "peft/adapter_config.json") << config.dump();
  EXPECT_THAT(refusal(dir / "peft"), HasSubstr("lora_A.weight\", expected"));
  auto tokenizer = testing::tiny_adapter(testing::tiny_options()[0], 5, base_sha256);
  tokenizer.tokenizer_sha256 = std::string(64, 'c');
  // The tiny model has no tokenizer that it could differ from.
  EXPECT_EQ(refusal(written("tokenizer", tokenizer)), "accepted");
}

TEST_F(AdapterArtefactsTest, DamagedFilesAreRefusedByName) {
  const auto flipped = written("flipped");
  std::string bytes = bytes_of(flipped / "adapter_model.safetensors");
  bytes.back() = bytes.back() == 'x' ? 'y' : 'x';
  std::ofstream(flipped / "adapter_model.safetensors", std::ios::binary) << bytes;
  EXPECT_THAT(refusal(flipped), HasSubstr("adapter_model.safetensors: SHA-256"));

  const auto missing = written("missing");
  fs::remove(missing / "adapter_model.safetensors");
  EXPECT_THAT(refusal(missing), HasSubstr("adapter_model.safetensors"));

  auto adapter = testing::tiny_adapter(testing::tiny_options()[0], 5, base_sha256);
  adapter.adaptation.layers[1].k.fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(refusal(written("nan", adapter)), HasSubstr("layers.1.self_attn.k_proj.weight"));

  const auto unknown = written("unknown");
  auto config = nlohmann::json::parse(bytes_of(unknown / "adapter_config.json"));
  config["moe"] = true;
  const std::string text = config.dump();
  std::ofstream(unknown / "adapter_config.json") << text;
  auto sums = nlohmann::json::parse(bytes_of(unknown / "checksums.json"));
  sums["adapter_config.json"] = base::sha256_hex(text);
  std::ofstream(unknown / "checksums.json") << sums.dump();
  EXPECT_THAT(refusal(unknown), HasSubstr("moe"));
}

TEST_F(AdapterArtefactsTest, ABrokenBaseIsTheWorkersMatter) {
  const auto uploaded = written("uploaded");
  fs::remove(dir / "model/config.json");
  try {
    imported(uploaded, dir / "model");
    FAIL() << "accepted";
  } catch (const ArtefactFailure& failure) {
    EXPECT_EQ(failure.kind(), ArtefactFailure::Kind::kBase) << failure.what();
  }
}

TEST_F(AdapterArtefactsTest, AFoldedModelIsTheBranchAndSaysHowExactly) {
  const auto work = exported(written("adapter"));
  const auto folded = export_folded_adapter(work);
  EXPECT_EQ(folded.dtype, "float32");
  EXPECT_EQ(folded.tokens, 64);
  EXPECT_TRUE(folded.within_bound);
  EXPECT_LE(folded.largest_logit_difference, 1e-4);
  EXPECT_EQ(folded.base_weights_sha256, base_sha256);
  const auto certificate = nlohmann::json::parse(bytes_of(dir / "folded/fold_certificate.json"));
  EXPECT_EQ(certificate.at("largest_logit_difference"), folded.largest_logit_difference);

  const at::NoGradGuard no_grad;
  const model::Config config = model::load_config(dir / "model");
  const auto batch = model::pack({{1, 5, 9, 2, 40, 7}});
  const auto plain = model::load_weights(dir / "model", config, {.dtype = at::kFloat});
  const auto inside = model::load_weights(dir / "folded", config, {.dtype = at::kFloat});
  const model::Llama base(config, plain), alone(config, inside);
  const auto adapter = model::load_adapter(work.adapter, {config, base_sha256});
  const at::Tensor difference =
      (alone.logits(batch) - base.logits(batch, adapter.adaptation)).abs().max();
  EXPECT_LE(difference.item<float>(), 1e-4F);
  // All of its files, and their hashes.
  const auto sums = nlohmann::json::parse(bytes_of(dir / "folded/checksums.json"));
  EXPECT_TRUE(sums.contains("model.safetensors"));
  EXPECT_TRUE(sums.contains("config.json"));
  for (const auto& entry : fs::directory_iterator(dir / "folded")) {
    const std::string name = entry.path().filename().string();
    if (name == "checksums.json") continue;
    EXPECT_EQ(sums.value(name, ""), base::sha256_file(entry.path()).value()) << name;
  }
}

TEST_F(AdapterArtefactsTest, WhatIsNotLinearATokenIsNotFolded) {
  const std::pair<int, const char*> cases[] = {
      {testing::kPrefixMean,
       "form prefix_mean keeps state between tokens; it can't be folded, serve it as an adapter"},
      {testing::kUniformMap,
       "form uniform_map keeps state between tokens; it can't be folded, serve it as an adapter"},
      {testing::kBottleneckAdapter, "can't be folded, serve it as an adapter"}};
  for (const auto& [options, says] : cases) {
    try {
      export_folded_adapter(exported(written("a" + std::to_string(options), options)));
      FAIL() << "folded " << options;
    } catch (const ArtefactFailure& failure) {
      EXPECT_EQ(failure.kind(), ArtefactFailure::Kind::kNotFoldable);
      EXPECT_THAT(failure.what(), HasSubstr(says));
    }
    EXPECT_FALSE(fs::exists(dir / "folded"));
  }
}

TEST_F(AdapterArtefactsTest, OnlyWhatWasPublishedIsFolded) {
  auto work = exported(written("adapter"));
  work.content_sha256 = std::string(64, 'd');
  EXPECT_THROW(export_folded_adapter(work), ArtefactFailure);
}

// A job must not use up its tries, or be told that its adapter is bad, where a disk has damaged
// the base: another worker's copy will do.
TEST_F(AdapterArtefactsTest, ADamagedBaseIsTheWorkersMatterInAFoldToo) {
  const auto work = exported(written("adapter"));
  std::string bytes = bytes_of(dir / "model/model.safetensors");
  bytes.back() = bytes.back() == 'x' ? 'y' : 'x';
  std::ofstream(dir / "model/model.safetensors", std::ios::binary) << bytes;
  try {
    export_folded_adapter(work);
    FAIL() << "folded";
  } catch (const ArtefactFailure& failure) {
    EXPECT_EQ(failure.kind(), ArtefactFailure::Kind::kBase) << failure.what();
  }
  EXPECT_FALSE(fs::exists(dir / "folded"));
}

// As long as this lives no file can grow beyond so many bytes: EFBIG, which jobs.md §6 takes for a
// quota.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(AdapterArtefactsTest, AFullQuotaIsNoReasonToTryAgain) {
  const auto uploaded = written("uploaded");
  const auto work = exported(uploaded);
  const auto kind_of = [](const std::function<void()>& make) {
    const FileSizeLimit limit(100);
    try {
      make();
    } catch (const ArtefactFailure& failure) {
      return failure.kind();
    }
    return ArtefactFailure::Kind::kAdapter;
  };
  EXPECT_EQ(kind_of([&] { imported(uploaded, dir / "model"); }), ArtefactFailure::Kind::kQuota);
  EXPECT_EQ(kind_of([&] { export_folded_adapter(work); }), ArtefactFailure::Kind::kQuota);
  EXPECT_FALSE(fs::exists(dir / "final"));
  EXPECT_FALSE(fs::exists(dir / "folded"));
}

}  // namespace
}  // namespace dex::serve
