// jobs.md P13: forty updates are seventeen, kill -9, and the rest, to the bit, for every way of
// training. The real program on a tiny model. No LibTorch here, since protobuf is.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "scheduler/core/presets.h"
#include "scheduler/core/resolve.h"
#include "services/base/files.h"
#include "services/base/frame_channel.h"
#include "services/base/subprocess.h"
#include "tests/support/figures.h"
#include "tests/support/long_form.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::train {
namespace {

namespace fs = std::filesystem;
namespace internal = dex::internal::v1;

const std::string kProgram = (support::build_dir() / "bin/dex-trainer").string();
const fs::path kTinyModel = support::source_dir() / "tests/data/train/model";
constexpr int64_t kLimitMs = 60'000;
constexpr uint32_t kKilledAt = 17, kUpdates = 40;

// A way of training as a part of FineTuningJobSpec in JSON.
struct Way {
  std::string name, spec;
  bool always = true;  // else in the long form only: its checkpoint holds no other kind of state
};

std::vector<Way> ways() {
  std::vector<Way> list = {
      // What is trained.
      {"kvo_dex", "{}"},
      {"dex_only", R"({"dex": {"train": "TRAIN_DEX_ONLY"}})"},
      {"lora_dex", R"({"dex": {"train": "TRAIN_LORA_DEX",
                               "lora": {"r": 3, "alpha": 6, "dropout": 0.1}}})"},
      {"full_dex", R"({"dex": {"train": "TRAIN_FULL_DEX"}})"},
      {"kvo_only", R"({"kvoOnly": {}})"},
      {"lora", R"({"lora": {"r": 3, "alpha": 6, "dropout": 0.1}})"},
      {"adapter", R"({"adapter": {"size": 6}})"},
      {"full", R"({"full": {}})"},
      {"diff", R"({"diff": {}})"},
      {"diff_v1_all", R"({"diff": {"version": "VERSION_V1", "train": "TRAIN_ALL"}})"},
      // What the branch computes.
      {"per_head", R"({"dex": {"projection": "PROJECTION_PER_HEAD"}})"},
      {"dense", R"({"dex": {"form": "FORM_DENSE", "allowLargeProjection": true}})", false},
      {"bottleneck", R"({"dex": {"projection": "PROJECTION_BOTTLENECK",
                                 "bottleneck": {"scope": "SCOPE_PER_HEAD",
                                                "activation": "ACTIVATION_SILU"},
                                 "allowLargeProjection": true}})",
       false},
      {"head_mean", R"({"dex": {"form": "FORM_HEAD_MEAN"}})", false},
      {"prefix_mean", R"({"dex": {"form": "FORM_PREFIX_MEAN"}})", false},
      {"uniform_map", R"({"dex": {"form": "FORM_UNIFORM_MAP"}})", false},
      {"literal", R"({"dex": {"start": "START_LITERAL",
                              "lambda": {"schedule": "SCHEDULE_COSINE",
                                         "start": 0.3, "end": 0.5}}})",
       false},
      {"learned_lambda", R"({"dex": {"lambda": {"schedule": "SCHEDULE_LEARNED",
                                                "learnInit": 0.2}}})"},
      {"constant_lambda", R"({"dex": {"lambda": {"schedule": "SCHEDULE_CONSTANT",
                                                 "value": 0.3}}})",
       false},
      // Its heads. Ramps of 16 updates are under way at the 17th.
      {"reselected", R"({"dex": {"headSelection": {"reselectEverySteps": 6,
                                                   "softFloor": 0.25}}})"},
      {"importance", R"({"dex": {"headSelection": {"criterion": "CRITERION_IMPORTANCE"}}})", false},
      {"explicit", R"({"dex": {"headSelection": {"criterion": "CRITERION_EXPLICIT",
                               "heads": [{"layer": 0, "heads": [1]},
                                         {"layer": 1, "heads": [0, 3]}]}}})",
       false},
      // What goes on beside it.
      {"without_packing", R"({"hyperparameters": {"packing": false}})", false},
      {"accumulated", R"({"hyperparameters": {"microBatchSize": 1, "weightDecay": 0.1,
                                              "lrSchedulerType": "LR_SCHEDULER_LINEAR"}})"},
      {"guarded", R"({"watchdog": {"baseGuard": {"klMax": 100}}})"},
      {"early_stopping", R"({"earlyStopping": {"enabled": true, "patience": 50}})"},
      {"frozen_prefix", R"({"hyperparameters": {"firstLayer": 1}})"},
      {"warm_start", R"({"dex": {"lambda": {"schedule": "SCHEDULE_LEARNED"}}})"},
      {"by_language", R"({"hyperparameters": {"groupBy": "GROUP_BY_LANGUAGE",
                                              "groupWeights": {"cy": 3}}})"},
  };
  if (!support::long_form()) std::erase_if(list, [](const Way& way) { return !way.always; });
  return list;
}

std::string text_of(const fs::path& file) {
  const auto content = base::read_file(file, 64 << 20);
  return content.ok() ? *content : "";
}

class ExactResumeProgramTest : public testing::Test {
 protected:
  ExactResumeProgramTest() {
    write_rows("train.jsonl", 60, 1);
    write_rows("validation.jsonl", 12, 2);
  }

  // Rows of 3 to 40 ids, each mostly a function of the one before; of every fourth the first half
  // is not trained, every fifth is in Welsh. 40 updates go over them about seven times.
  void write_rows(const std::string& name, int count, uint32_t seed) const {
    std::ofstream out(directory_ / name);
    uint32_t state = seed;
    const auto draw = [&state](uint32_t bound) {
      state = state * 1664525u + 1013904223u;
      return (state >> 16) % bound;
    };
    for (int row = 0; row < count; ++row) {
      const uint32_t length = 3 + draw(38);
      std::ostringstream ids, labels;
      uint32_t id = draw(97);
      for (uint32_t i = 0; i < length; ++i) {
        const char* comma = i == 0 ? "" : ", ";
        ids << comma << id;
        labels << comma;
        if (row % 4 == 3 && i < length / 2) {
          labels << -100;
        } else {
          labels << id;
        }
        id = draw(10) == 0 ? draw(97) : (id * 5 + 3) % 97;
      }
      out << R"({"input_ids": [)" << ids.str() << R"(], "labels": [)" << labels.str()
          << R"(], "language": ")" << (row % 5 == 4 ? "cy" : "en") << "\"}\n";
    }
  }

  // What all ways share; a way's own fields are merged into it.
  internal::TrainerStart start_of(const std::string& way) const {
    internal::TrainerStart start = place();
    merge(R"({"seed": "5",
              "dex": {"headSelection": {"criterion": "CRITERION_ENTROPY",
                                        "calibration": {"skipRows": 8}}},
              "hyperparameters": {"maxSteps": 40, "maxSeqLength": 64, "batchSize": 4,
                                  "microBatchSize": 2, "learningRate": 3e-3,
                                  "branchLearningRate": 3e-3, "lambdaLearningRate": 1e-2},
              "evaluation": {"everySteps": 8},
              "checkpoints": {"everySteps": 17}})",
          *start.mutable_spec());
    merge(way, *start.mutable_spec());
    return start;
  }
  internal::TrainerStart place() const {
    internal::TrainerStart start;
    start.set_job_id("ftjob-exact");
    start.set_model_dir(kTinyModel.string());
    start.set_training_path((directory_ / "train.jsonl").string());
    start.set_validation_path((directory_ / "validation.jsonl").string());
    start.set_probe_path((directory_ / "validation.jsonl").string());
    start.set_threads(1);
    start.set_attempt(1);
    return start;
  }
  static void merge(const std::string& json, dex::v1::FineTuningJobSpec& spec) {
    dex::v1::FineTuningJobSpec part;
    const auto read = google::protobuf::util::JsonStringToMessage(json, &part);
    if (!read.ok()) throw std::runtime_error(json + ": " + std::string(read.message()));
    spec.MergeFrom(part);
  }

  std::unique_ptr<base::Subprocess> trainer(const std::string& attempt,
                                            std::vector<std::string> args,
                                            std::vector<int> inherit = {}) const {
    base::Subprocess::Options options;
    options.program = kProgram;
    options.args = std::move(args);
    options.inherit = std::move(inherit);
    options.stdout_file = options.stderr_file = directory_ / (attempt + ".log");
    auto process = base::Subprocess::start(options);
    if (!process.ok()) throw std::runtime_error(process.status().to_string());
    return std::move(process).value();
  }
  std::unique_ptr<base::Subprocess> alone(const internal::TrainerStart& start,
                                          const std::string& attempt) const {
    std::string json;
    if (!google::protobuf::util::MessageToJsonString(start, &json).ok())
      throw std::runtime_error("no JSON of TrainerStart");
    const fs::path file = directory_ / (attempt + ".json");
    std::ofstream(file) << json;
    return trainer(attempt,
                   {"--spec", file.string(), "--attempt-dir", (directory_ / attempt).string()});
  }
  void expect_success(base::Subprocess& process, const std::string& attempt) const {
    const auto end = process.wait(kLimitMs);
    ASSERT_TRUE(end && end->success()) << text_of(directory_ / (attempt + ".log"));
  }

  // Starts the job under an agent, and kills it when it has told of its checkpoint of step 17.
  // Between the two it can't get further than a few updates: its socket holds only some frames,
  // and nobody reads them.
  internal::TrainerReport::CheckpointDone kill_at_seventeen(internal::TrainerStart start) const {
    start.set_attempt_dir((directory_ / "killed").string());
    internal::TrainerCommand first;
    *first.mutable_start() = std::move(start);
    auto pair = base::FrameChannel::pair();
    if (!pair.ok()) throw std::runtime_error(pair.status().to_string());
    auto& [channel, end] = *pair;
    const int least = 1;
    EXPECT_EQ(setsockopt(end.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    const auto process = trainer("killed", {"--frames-fd", "3"}, {end.get()});
    end.reset();
    EXPECT_TRUE(channel->write(first.SerializeAsString(), kLimitMs).ok());
    internal::TrainerReport report;
    while (report.checkpoint().step() != kKilledAt) {
      const auto frame = channel->read(kLimitMs);
      if (!frame.ok() || !report.ParseFromString(*frame) || report.has_result()) {
        ADD_FAILURE() << "no checkpoint of step 17: " << report.ShortDebugString() << " "
                      << text_of(directory_ / "killed.log");
        return {};
      }
    }
    process->signal(SIGKILL);
    EXPECT_EQ(process->wait(kLimitMs)->signal, SIGKILL);
    EXPECT_FALSE(fs::exists(directory_ / "killed/step-34"));
    EXPECT_FALSE(fs::exists(directory_ / "killed/final"));
    return report.checkpoint();
  }

  // Bytes by name: of the last checkpoint all but the manifest, which names the attempt, and the
  // published weights.
  std::map<std::string, std::string> left_by(const std::string& attempt) const {
    std::map<std::string, std::string> bytes;
    const auto take = [&](const std::string& folder, std::string_view ending) {
      for (const auto& entry : fs::directory_iterator(directory_ / attempt / folder)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(ending) && name != "MANIFEST.json")
          bytes[folder + "/" + name] = text_of(entry.path());
      }
    };
    take("step-" + std::to_string(kUpdates), "");
    take("final", ".safetensors");
    return bytes;
  }

  // The undisturbed job; the same killed and resumed with `resumed`, which may differ from it in
  // what the machine decides.
  void expect_exact(const internal::TrainerStart& start, const internal::TrainerStart& disturbed) {
    const auto straight = alone(start, "straight");  // meanwhile
    const auto checkpoint = kill_at_seventeen(disturbed);
    internal::TrainerStart rest = disturbed;
    rest.set_attempt(2);
    rest.set_checkpoint_dir(checkpoint.uri());
    rest.set_checkpoint_manifest_sha256(checkpoint.manifest_sha256());
    expect_success(*alone(rest, "resumed"), "resumed");
    expect_success(*straight, "straight");
    EXPECT_THAT(text_of(directory_ / "resumed.log"), testing::HasSubstr("resumed at step 17"));

    const auto expected = left_by("straight"), found = left_by("resumed");
    EXPECT_GE(expected.size(), 4U);
    ASSERT_EQ(expected.size(), found.size());
    for (const auto& [name, bytes] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_FALSE(bytes.empty()) << name;
      EXPECT_TRUE(bytes == found.at(name)) << name << " differs";
    }
  }

  support::TemporaryDirectory directory_;
};

class ExactResumeWayTest : public ExactResumeProgramTest,
                           public testing::WithParamInterface<Way> {};

TEST_P(ExactResumeWayTest, KilledAtSeventeenGivesTheBitsOfForty) {
  internal::TrainerStart start = start_of(GetParam().spec);
  if (GetParam().name == "warm_start") {
    internal::TrainerStart parent = start_of("{}");
    parent.mutable_spec()->mutable_hyperparameters()->set_max_steps(6);
    expect_success(*alone(parent, "parent"), "parent");
    start.set_start_adapter_dir((directory_ / "parent/final").string());
  }
  internal::TrainerStart disturbed = start;
  if (GetParam().name == "frozen_prefix") {  // read from files, which changes nothing
    disturbed.set_prefix_cache_dir((directory_ / "cache").string());
    disturbed.set_prefix_cache_bytes(100'000'000);
  }
  expect_exact(start, disturbed);
  if (!HasFailure()) support::figure("P13", "updates_equal_to_the_bit", kUpdates);
}

INSTANTIATE_TEST_SUITE_P(Ways, ExactResumeWayTest, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

// As the scheduler resolves it for this model.
class ExactResumePresetTest : public ExactResumeProgramTest,
                              public testing::WithParamInterface<std::string> {
 protected:
  internal::TrainerStart resolved(const std::string& preset) const {
    core::ResolveInput input;
    input.model.set_name("tiny");
    input.model.set_parameters(100'000);  // what counts is the size class
    input.model.set_layers(2);
    input.model.set_query_heads(4);
    input.model.set_kv_heads(2);
    input.model.set_head_dim(8);
    input.model.set_hidden_size(32);
    input.model.set_intermediate_size(48);
    input.model.set_context_length(256);
    input.model.set_vocab_size(97);
    input.model.set_tied_embeddings(true);
    input.training = {dex::v1::FILE_FORMAT_TOKENS, 60, 1300, 40};
    input.validation = core::DataFacts{dex::v1::FILE_FORMAT_TOKENS, 12, 260, 40};
    merge(R"({"model": "tiny", "trainingFile": "file-1", "validationFile": "file-2", "seed": "5",
              "dex": {"headSelection": {"calibration": {"skipRows": 8}}},
              "hyperparameters": {"maxSteps": 40, "maxSeqLength": 64, "batchSize": 4,
                                  "microBatchSize": 2}})",
          input.spec);
    input.spec.mutable_dex()->set_preset(preset);
    const auto resolved = core::resolve(input);
    if (!resolved.ok()) throw std::runtime_error(resolved.status().to_string());
    internal::TrainerStart start = place();
    *start.mutable_spec() = resolved->config.spec();
    start.mutable_spec()->mutable_checkpoints()->set_every_steps(kKilledAt);
    auto& heads = *start.mutable_spec()->mutable_dex()->mutable_head_selection();
    if (heads.reselect_every_steps() > 0) heads.set_reselect_every_steps(6);
    return start;
  }
};

TEST_P(ExactResumePresetTest, KilledAtSeventeenGivesTheBitsOfForty) {
  const internal::TrainerStart start = resolved(GetParam());
  expect_exact(start, start);
}

// In the short form one of each kind: as published, and for a domain.
std::vector<std::string> chosen_presets() {
  if (!support::long_form()) return {std::string("paper"), std::string("code")};
  std::vector<std::string> names;
  for (const std::string_view name : core::preset_names()) names.emplace_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Presets, ExactResumePresetTest, testing::ValuesIn(chosen_presets()),
                         [](const auto& info) { return info.param; });

// A checkpoint that is damaged is refused with a code of its own, by which an agent knows that
// nothing here is at fault.
TEST_F(ExactResumeProgramTest, ADamagedCheckpointEndsWithTwenty) {
  internal::TrainerStart start = start_of("{}");
  const auto checkpoint = kill_at_seventeen(start);
  fs::resize_file(fs::path(checkpoint.uri()) / "adapter.safetensors", 100);
  start.set_checkpoint_dir(checkpoint.uri());
  const auto end = alone(start, "resumed")->wait(kLimitMs);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 20);
  EXPECT_THAT(text_of(directory_ / "resumed.log"),
              testing::HasSubstr("adapter.safetensors: has 100 bytes, expected"));
}

}  // namespace
}  // namespace dex::train
