// Adapters that come in from elsewhere and leave as plain models, through every process, on a tiny
// random model.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

// One platform with one adapter, of kvo+dex, for all tests.
class AdaptersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data",
                                    support::write_tiny_model(*directory_ / "models"));
    platform_->start();
    file_ = new std::string(platform_->upload_rows("code", "train", 20));
    const Outcome trained = platform_->ctl(
        support::with(support::small_job(*file_, *file_, 4, support::kTinyModel), {"--follow"}));
    EXPECT_EQ(trained.code, 0) << trained.err;
    adapter_ = new std::string(trained.json().at("fine_tuned_model").get<std::string>());
    EXPECT_EQ(platform_->ctl({"adapters", "download", *adapter_, *directory_ / "mine"}).code, 0);
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    for (const std::string* text : {file_, adapter_}) delete text;
  }

  // A job of another method than dex; its adapter.
  static std::string trained(const std::string& method, const std::string& rate = "0.01",
                             const std::vector<std::string>& more = {}) {
    const Outcome outcome =
        platform_->ctl(support::with(support::tiny_job(*file_, method, rate), more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json().at("fine_tuned_model");
  }
  static Outcome imported(const fs::path& folder) {
    return platform_->ctl({"adapters", "import", folder, "--model", support::kTinyModel});
  }
  static std::string greedy(const std::string& model) {
    const Outcome outcome =
        platform_->ctl({"generate", model, "--prompt", "def add(a, b):\n", "--max-tokens", "12",
                        "--temperature", "0", "--no-stream"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json().at("text");
  }
  static std::vector<double> scores(const fs::path& model, const std::vector<std::string>& more) {
    return support::run_program(
               "dex-engine", support::with({"score", "--model", model, "--dtype", "f32", "--tokens",
                                            "1,2,3,28,30,198,504,4041"},
                                           more))
        .json()
        .get<std::vector<double>>();
  }
  static void write_text(const fs::path& path) {
    std::ofstream text(path);
    for (int i = 0; i < 150; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
  }
  // A copy of the downloaded folder.
  static fs::path copied(const std::string& name) {
    const fs::path folder = *directory_ / name;
    fs::copy(*directory_ / "mine", folder);
    return folder;
  }
  // One that says by `key` of its configuration that it was made for something else, with sums that
  // agree.
  static fs::path foreign(const std::string& key) {
    const fs::path folder = copied("foreign-" + key);
    auto config =
        nlohmann::json::parse(base::read_file(folder / "adapter_config.json", 1 << 20).value());
    config.at(key) = std::string(64, 'b');
    const std::string text = config.dump();
    std::ofstream(folder / "adapter_config.json") << text;
    auto sums = nlohmann::json::parse(base::read_file(folder / "checksums.json", 1 << 20).value());
    sums["adapter_config.json"] = base::sha256_hex(text);
    std::ofstream(folder / "checksums.json") << sums.dump();
    return folder;
  }

  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static std::string* file_;
  static std::string* adapter_;
};
support::TemporaryDirectory* AdaptersTest::directory_ = nullptr;
RunningPlatform* AdaptersTest::platform_ = nullptr;
std::string* AdaptersTest::file_ = nullptr;
std::string* AdaptersTest::adapter_ = nullptr;

TEST_F(AdaptersTest, OneThatWasDownloadedComesBackAsTheSame) {
  const Outcome outcome = imported(*directory_ / "mine");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto copy = outcome.json();
  const std::string id = copy.at("id");
  EXPECT_THAT(id, StartsWith(std::string("ft:") + support::kTinyModel + ":default:"));
  EXPECT_NE(id, *adapter_);
  EXPECT_EQ(copy.at("origin"), "ORIGIN_IMPORTED");
  const auto original = platform_->ctl({"adapters", "get", *adapter_}).json();
  EXPECT_EQ(original.at("origin"), "ORIGIN_TRAINED");
  for (const char* key : {"content_sha256", "base_weights_sha256", "tokenizer_sha256", "method",
                          "form", "projection", "train", "artifact_class", "bytes"})
    EXPECT_EQ(copy.at(key), original.at(key)) << key;
  EXPECT_EQ(greedy(id), greedy(*adapter_));

  // It is measured as the original is.
  write_text(*directory_ / "wiki.raw");
  const auto measured = [&](const std::string& adapter) {
    const Outcome evaluation = platform_->ctl(
        {"evaluations", "create", "--adapter", adapter, "--task", "perplexity", "--file",
         *directory_ / "wiki.raw", "--set", "context_length=128", "--seed", "5", "--follow"});
    EXPECT_EQ(evaluation.code, 0) << evaluation.err;
    std::vector<double> losses;
    const auto rows = evaluation.json().at("results").at(0).at("rows");
    for (const auto& row : rows)
      if (row.at("metric") == "loss") losses.push_back(row.at("value"));
    return losses;
  };
  EXPECT_EQ(measured(id), measured(*adapter_));

  // And a job goes on from it.
  const Outcome next = platform_->ctl({"jobs", "create", "--model", id, "--training-file", *file_,
                                       "--max-steps", "2", "--batch-size", "2", "--max-seq-length",
                                       "128", "--seed", "1", "--yes", "--follow"});
  ASSERT_EQ(next.code, 0) << next.err;
  EXPECT_EQ(next.json().at("state"), "JOB_STATE_SUCCEEDED");
}

// What PEFT saves is this folder without our two files (worker/model/peft_config.h).
TEST_F(AdaptersTest, ALoraFolderOfPeftsIsServed) {
  const std::string lora = trained("lora");
  const fs::path folder = *directory_ / "lora";
  ASSERT_EQ(platform_->ctl({"adapters", "download", lora, folder}).code, 0);
  fs::remove(folder / "checksums.json");
  fs::remove(folder / "provenance.json");
  const Outcome outcome = imported(folder);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("method"), "lora");
  EXPECT_EQ(greedy(outcome.json().at("id")), greedy(lora));
}

TEST_F(AdaptersTest, WhatDoesNotFitIsRefusedWithItsReason) {
  const fs::path damaged = copied("damaged");
  {
    std::fstream file(damaged / "adapter_model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const Outcome other_bytes = imported(damaged);
  EXPECT_EQ(other_bytes.code, 3);
  EXPECT_THAT(other_bytes.err, HasSubstr("CHECKSUM_MISMATCH"));

  // What it was made for: weights, ids, words around a chat.
  const std::map<std::string, std::string> bound = {
      {"base_weights_sha256", "made for another base"},
      {"tokenizer_sha256", "made for another tokenizer"},
      {"chat_template_sha256", "made for another chat template"}};
  for (const auto& [key, words] : bound) {
    const Outcome refused = imported(foreign(key));
    EXPECT_EQ(refused.code, 3) << key;
    EXPECT_THAT(refused.err, HasSubstr("ADAPTER_MISMATCH")) << key;
    EXPECT_THAT(refused.err, HasSubstr(words));
    EXPECT_EQ(refused.err.find(platform_->data_dir().string()), std::string::npos)
        << "no path of the server's";
  }
}

TEST_F(AdaptersTest, AFoldedExportIsThePlainModel) {
  const fs::path folder = *directory_ / "folded";
  const Outcome outcome = platform_->ctl(
      {"adapters", "export", *adapter_, "--folded", "--dtype", "fp32", "--out", folder});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("state"), "STATE_READY");
  const auto certificate = outcome.json().at("certificate");
  EXPECT_EQ(certificate.at("within_bound"), true);
  EXPECT_EQ(certificate.at("dtype"), "float32");
  EXPECT_THAT(outcome.err, HasSubstr("checksums agree"));
  const auto alone = scores(folder, {});
  const auto adapted =
      scores(*directory_ / "models" / support::kTinyModel, {"--adapter", *directory_ / "mine"});
  ASSERT_EQ(alone.size(), adapted.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], adapted[i], 1e-3) << i;
  const Outcome again =
      platform_->ctl({"adapters", "export", *adapter_, "--folded", "--out", folder});
  EXPECT_EQ(again.code, 3);
  EXPECT_THAT(again.err, HasSubstr("not empty"));
}

TEST_F(AdaptersTest, ABottleneckAdapterIsNotFoldable) {
  const Outcome outcome = platform_->ctl(
      {"adapters", "export", trained("adapter"), "--folded", "--out", *directory_ / "never"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("NOT_FOLDABLE"));
  EXPECT_THAT(outcome.err, HasSubstr("can't be folded, serve it as an adapter"));
  EXPECT_FALSE(fs::exists(*directory_ / "never"));
}

// From the artefact of a job that trains everything to a base model that is served, measured and
// trained: the last test, since the platform starts anew for it.
TEST_F(AdaptersTest, APublishedModelIsMeasuredBesideItsBaseAndBecomesOneOfItsOwn) {
  write_text(*directory_ / "full.raw");
  const std::string file = *directory_ / "full.raw";
  const auto losses = [&](const std::vector<std::string>& subject) {
    const Outcome evaluation =
        platform_->ctl(support::with({"evaluations", "create", "--task", "perplexity", "--file",
                                      file, "--set", "context_length=128", "--follow"},
                                     subject));
    EXPECT_EQ(evaluation.code, 0) << evaluation.err;
    std::vector<double> out;
    const auto rows = evaluation.json().at("results").at(0).at("rows");
    for (const auto& row : rows)
      if (row.at("metric") == "loss") out.push_back(row.at("value"));
    return out;
  };
  // Its gate asks for a task on both, before it is published.
  const std::string full =
      trained("full", "0.001", {"--promote-if", "perplexity(" + file + ").loss<=100"});
  EXPECT_EQ(platform_->ctl({"adapters", "get", full}).json().at("promotable"), true);
  const auto beside = losses({"--adapter", full});
  ASSERT_EQ(beside.size(), 2U) << "base and model";
  EXPECT_NE(beside[0], beside[1]);

  const Outcome loaded = platform_->ctl({"adapters", "load", full});
  EXPECT_NE(loaded.code, 0);
  EXPECT_THAT(loaded.err, HasSubstr("dexctl models add"));
  const fs::path list = *directory_ / "models/models.json";
  const std::vector<std::string> add = {"models", "add", "tiny-full", "--list", list};
  const Outcome light = platform_->ctl(support::with(add, {"--adapter", *adapter_}));
  EXPECT_EQ(light.code, 3);
  EXPECT_THAT(light.err, HasSubstr("adapters export " + *adapter_ + " --folded"));
  const Outcome added = platform_->ctl(support::with(add, {"--adapter", full}));
  ASSERT_EQ(added.code, 0) << added.err;
  EXPECT_THAT(added.err, HasSubstr("restart dexd"));
  EXPECT_EQ(platform_->ctl(support::with(add, {"--adapter", full})).code, 3) << "taken";

  ASSERT_EQ(platform_->stop(), 0) << platform_->log();
  platform_->start();
  const auto shown = platform_->ctl({"models", "show", "tiny-full"}).json();
  EXPECT_EQ(shown.at("weights_sha256"), added.json().at("weights_sha256"));
  EXPECT_FALSE(greedy("tiny-full").empty());
  const auto alone = losses({"--model", "tiny-full"});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0], beside[1]) << "the same weights, whatever they are called";
  const Outcome next = platform_->ctl(
      {"jobs", "create", "--model", "tiny-full", "--training-file", *file_, "--method", "lora",
       "--max-steps", "1", "--batch-size", "2", "--max-seq-length", "128", "--yes", "--follow"});
  EXPECT_EQ(next.code, 0) << next.err;
}

}  // namespace
}  // namespace dex
