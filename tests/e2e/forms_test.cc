// Forms and methods through every process, on a tiny random model: what a job publishes is served
// with the text that the engine alone gives for the downloaded adapter. Forms that keep state
// between tokens among them, heads that are selected again, and a start that is not the base.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
namespace fs = std::filesystem;

// What is asked for, and what adapter_config.json then says.
struct ServedForm {
  std::string name;
  std::vector<std::string> flags;
  nlohmann::json config;          // empty: what it publishes is a whole model
  std::vector<std::string> says;  // in the job's events
};

std::ostream& operator<<(std::ostream& out, const ServedForm& form) {
  return out << form.name;
}

// A branch on every head that has grown strong enough in three updates to be heard.
std::vector<std::string> loud_branch(const std::vector<std::string>& more) {
  return support::with({"--preset", "paper", "--set", "dex.head_selection.criterion=ALL", "--set",
                        "dex.lambda.schedule=CONSTANT", "--set", "dex.lambda.value=0.5", "--set",
                        "hyperparameters.branch_learning_rate=0.05"},
                       more);
}

std::vector<ServedForm> served_forms() {
  return {
      {"prefix_mean",
       loud_branch({"--set", "dex.form=PREFIX_MEAN"}),
       {{"form", "prefix_mean"}, {"sign", "plus"}, {"train", "kvo+dex"}}},
      {"uniform_map",
       loud_branch({"--set", "dex.form=UNIFORM_MAP"}),
       {{"form", "uniform_map"}, {"sign", "minus"}, {"train", "kvo+dex"}}},
      {"bottleneck_silu",
       loud_branch(
           {"--set", "dex.projection=BOTTLENECK", "--set", "dex.bottleneck.activation=SILU"}),
       {{"form", "paper"}, {"projection", "bottleneck"}, {"bottleneck_activation", "silu"}}},
      {"lora_dex",
       loud_branch({"--set", "dex.train=LORA_DEX"}),
       {{"form", "paper"}, {"projection", "shared"}, {"train", "lora+dex"}}},
      // A scale that three updates from B = 0 can be heard with.
      {"lora", {"--method", "lora", "--set", "lora.alpha=256"}, {{"peft_type", "LORA"}}},
      {"adapter", {"--method", "adapter"}, {{"form", "none"}, {"train", "adapter"}}},
      {"kvo_only", {"--method", "kvo_only"}, {{"form", "none"}, {"train", "kvo_only"}}},
      {"dense_dex_only",
       loud_branch({"--set", "dex.form=DENSE", "--set", "dex.train=DEX_ONLY"}),
       {{"form", "paper"}, {"projection", "dense"}, {"sign", "plus"}, {"train", "dex_only"}}},
      {"multilingual_literal",
       {"--preset", "multilingual", "--set", "dex.start=LITERAL", "--set", "dex.lambda.start=0.4",
        "--set", "hyperparameters.branch_learning_rate=0.05", "--set", "dex.head_selection.tau=0",
        "--set", "dex.head_selection.reselect_every_steps=1", "--set",
        "dex.head_selection.calibration.n_sequences=2", "--set",
        "dex.head_selection.calibration.seq_length=128"},
       {{"form", "head_mean"}, {"projection", "bottleneck"}, {"bottleneck_scope", "per_head"}},
       {"heads selected again before step 2", "heads selected again before step 3",
        "start_not_identity"}},
      {"full_dex", loud_branch({"--set", "dex.train=FULL_DEX"}), {}},
  };
}

// One platform for all of them.
class FormsTest : public testing::TestWithParam<ServedForm> {
 protected:
  struct Shared {
    support::TemporaryDirectory directory;
    RunningPlatform platform{directory / "data", support::write_tiny_model(directory / "models")};
    std::string training, validation, base_text;
  };

  static void SetUpTestSuite() {
    shared_ = std::make_unique<Shared>();
    shared_->platform.start();
    shared_->training = shared_->platform.upload_rows("code", "train", 20);
    shared_->validation = shared_->platform.upload_rows("code", "validation", 10);
    shared_->base_text = served_text(support::kTinyModel);
  }
  static void TearDownTestSuite() { shared_.reset(); }

  // More than a block of the cache, so that a second request finds it there.
  static std::vector<std::string> greedy() {
    return {
        "--prompt",
        "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):",
        "--max-tokens",
        "16",
        "--temperature",
        "0"};
  }
  static std::string served_text(const std::string& model) {
    const Outcome outcome = shared_->platform.ctl(support::with({"generate", model}, greedy()));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json().at("text").get<std::string>() : "";
  }
  // The finished job, of three updates of two short rows.
  static nlohmann::json finished_job(std::vector<std::string> flags) {
    const bool branch_alone =
        std::find(flags.begin(), flags.end(), "dex.train=DEX_ONLY") != flags.end();
    if (!branch_alone) flags = support::with({"--learning-rate", "0.01"}, flags);
    const Outcome outcome = shared_->platform.ctl(support::with({"jobs",
                                                                 "create",
                                                                 "--model",
                                                                 support::kTinyModel,
                                                                 "--training-file",
                                                                 shared_->training,
                                                                 "--validation-file",
                                                                 shared_->validation,
                                                                 "--max-steps",
                                                                 "3",
                                                                 "--batch-size",
                                                                 "2",
                                                                 "--max-seq-length",
                                                                 "128",
                                                                 "--seed",
                                                                 "1",
                                                                 "--set",
                                                                 "evaluation.max_tokens=384",
                                                                 "--set",
                                                                 "evaluation.every_steps=3",
                                                                 "--yes",
                                                                 "--follow"},
                                                                flags));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  }

  // A checkpoint that any program loads, with the branch inside its weights.
  static void expect_plain_model(const std::string& id, const fs::path& folder) {
    const auto adapter = shared_->platform.ctl({"adapters", "get", id}).json();
    EXPECT_EQ(adapter.at("artifact_class"), "MODEL");
    EXPECT_EQ(adapter.at("train"), "full+dex");
    ASSERT_EQ(shared_->platform.ctl({"adapters", "download", id, folder}).code, 0);
    EXPECT_FALSE(fs::exists(folder / "adapter_config.json"));
    const Outcome alone = support::run_program(
        "dex-engine", support::with({"generate", "--model", folder}, greedy()));
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_NE(alone.out, shared_->base_text + "\n");
  }

  static std::unique_ptr<Shared> shared_;
};
std::unique_ptr<FormsTest::Shared> FormsTest::shared_;

TEST_P(FormsTest, ServesWhatTheEngineAloneGives) {
  const auto job = finished_job(GetParam().flags);
  ASSERT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_NE(job.at("metrics").at("valid_loss"), job.at("metrics").at("base_valid_loss"));
  const Outcome events = shared_->platform.ctl({"jobs", "events", job.at("id")});
  for (const std::string& words : GetParam().says) EXPECT_THAT(events.out, HasSubstr(words));
  const std::string adapter = job.at("fine_tuned_model");
  if (GetParam().config.empty())
    return expect_plain_model(adapter, shared_->directory / GetParam().name);
  const std::string text = served_text(adapter);
  EXPECT_FALSE(text.empty());
  EXPECT_NE(text, shared_->base_text);
  EXPECT_EQ(served_text(adapter), text);  // the prompt is in the cache now

  const fs::path folder = shared_->directory / GetParam().name;
  ASSERT_EQ(shared_->platform.ctl({"adapters", "download", adapter, folder}).code, 0);
  const auto config = nlohmann::json::parse(std::ifstream(folder / "adapter_config.json"));
  for (const auto& [key, value] : GetParam().config.items()) EXPECT_EQ(config.at(key), value);
  if (config.value("form", "none") != "none") {
    EXPECT_NE(config.at("branch_effect").at("verdict"), "INERT");
  }
  const Outcome alone = support::run_program(
      "dex-engine",
      support::with({"generate", "--model", shared_->directory / "models" / support::kTinyModel,
                     "--adapter", folder},
                    greedy()));
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, text + "\n");
}

INSTANTIATE_TEST_SUITE_P(All, FormsTest, testing::ValuesIn(served_forms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dex
