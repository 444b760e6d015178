// dex-trainer as a program: alone and under an agent's frames. No LibTorch here, since protobuf is.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/files.h"
#include "services/base/frame_channel.h"
#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/own_mounts.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::train {
namespace {

namespace fs = std::filesystem;
namespace internal = dex::internal::v1;
using support::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTrainer = (support::build_dir() / "bin/dex-trainer").string();
const fs::path kData = support::source_dir() / "tests/data/train";
constexpr int64_t kPatienceMs = 120'000;

class ProgramTest : public testing::Test {
 protected:
  // TrainerStart on the golden model and rows: 400 updates of a few milliseconds, a checkpoint
  // every 20.
  nlohmann::json start(int updates = 400) const {
    return {{"jobId", "ftjob-program"},
            {"modelDir", (kData / "model").string()},
            {"trainingPath", (kData / "rows.jsonl").string()},
            {"threads", 1},
            {"spec",
             {{"seed", "5"},
              {"dex",
               {{"headSelection",
                 {{"criterion", "CRITERION_ENTROPY"}, {"calibration", {{"skipRows", 8}}}}}}},
              {"checkpoints", {{"everySteps", 20}}},
              {"hyperparameters",
               {{"maxSteps", updates},
                {"maxSeqLength", 64},
                {"batchSize", 2},
                {"learningRate", 1e-3}}}}}};
  }

  std::unique_ptr<base::Subprocess> trainer(std::vector<std::string> args,
                                            std::vector<int> inherit = {}) const {
    base::Subprocess::Options options;
    options.program = kTrainer;
    options.args = std::move(args);
    options.inherit = std::move(inherit);
    options.stdout_file = directory_ / "out.txt";
    options.stderr_file = directory_ / "err.txt";
    auto process = base::Subprocess::start(options);
    if (!process.ok()) throw std::runtime_error(process.status().to_string());
    return std::move(process).value();
  }
  std::unique_ptr<base::Subprocess> alone(const nlohmann::json& start,
                                          const std::string& attempt) const {
    const fs::path file = directory_ / (attempt + ".json");
    std::ofstream(file) << start.dump();
    return trainer({"--spec", file.string(), "--attempt-dir", (directory_ / attempt).string()});
  }
  std::string text(const fs::path& file) const {
    auto content = base::read_file(file, 64 << 20);
    return content.ok() ? content.value() : "";
  }
  support::TemporaryDirectory directory_;
};

TEST_F(ProgramTest, HelpTeachesAndUsageIsRefused) {
  EXPECT_EQ(trainer({"--help"})->wait(kPatienceMs)->code, 0);
  EXPECT_THAT(text(directory_ / "out.txt"), HasSubstr("trainingPath"));
  EXPECT_EQ(trainer({})->wait(kPatienceMs)->code, 2);
  EXPECT_THAT(text(directory_ / "err.txt"), HasSubstr("--spec FILE or --frames-fd N"));
  EXPECT_EQ(trainer({"--spec", (directory_ / "none.json").string()})->wait(kPatienceMs)->code, 10);
  EXPECT_THAT(text(directory_ / "err.txt"), HasSubstr("none.json"));
}

TEST_F(ProgramTest, TrainsAloneWithoutATokenizer) {
  const auto status = alone(start(20), "attempt-1")->wait(kPatienceMs);
  ASSERT_TRUE(status && status->success()) << text(directory_ / "err.txt");
  EXPECT_TRUE(fs::exists(directory_ / "attempt-1/final/checksums.json"));
  const std::string out = text(directory_ / "out.txt");
  const size_t last = out.find("step 20/20");
  EXPECT_NE(last, std::string::npos) << out;
  EXPECT_EQ(out.find("step 20/20", last + 1), std::string::npos) << out;
}

// Alone a job keeps nothing unless it is told where.
TEST_F(ProgramTest, TheNextJobReadsWhatFrozenLayersComputed) {
  auto upper = start(20);
  upper["spec"]["hyperparameters"]["firstLayer"] = 1;
  const fs::path file = directory_ / "upper.json", cache = directory_ / "kept";
  std::ofstream(file) << upper.dump();
  const auto run = [&](const std::string& attempt, const std::string& bytes) {
    const auto status =
        trainer({"--spec", file.string(), "--attempt-dir", (directory_ / attempt).string(),
                 "--prefix-cache", cache.string(), "--prefix-cache-bytes", bytes})
            ->wait(kPatienceMs);
    EXPECT_TRUE(status && status->success()) << text(directory_ / "err.txt");
    return text(directory_ / "out.txt");
  };
  EXPECT_THAT(run("off", "0"), ::testing::Not(HasSubstr("prefix_cache")));
  EXPECT_FALSE(fs::exists(cache));
  EXPECT_THAT(run("cold", "100000000"), HasSubstr("prefix_cache: the lowest 1 layers were read"));
  run("warm", "100000000");
  const std::string metrics = text(directory_ / "warm/metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr("\"prefixMisses\":0"));
  EXPECT_EQ(text(directory_ / "off/final/adapter_model.safetensors"),
            text(directory_ / "warm/final/adapter_model.safetensors"));
}

TEST_F(ProgramTest, SpecErrorsNameFieldAndValue) {
  auto bad = start();
  bad["spec"]["hyperparameters"]["learningRate"] = -1;
  EXPECT_EQ(alone(bad, "bad")->wait(kPatienceMs)->code, 10);
  EXPECT_THAT(text(directory_ / "err.txt"),
              HasSubstr("hyperparameters.learning_rate: must be a number above 0, got -1"));
  auto data = start();
  data["trainingPath"] = (directory_ / "missing.jsonl").string();
  EXPECT_EQ(alone(data, "bad")->wait(kPatienceMs)->code, 11);
  EXPECT_THAT(text(directory_ / "err.txt"), HasSubstr("missing.jsonl"));
}

// A disk that is really full: a small tmpfs in a mount namespace of its own, which somebody else
// fills up once there are two checkpoints.
TEST_F(ProgramTest, AFullDiskEndsTheRunWithItsLastCheckpointIntact) {
  ASSERT_TRUE(alone(start(), "straight")->wait(kPatienceMs)->success());
  const fs::path spec = directory_ / "full.json", disk = directory_ / "disk";
  std::ofstream(spec) << start().dump();
  fs::create_directory(disk);
  base::Subprocess::Options options;
  options.program = "unshare";
  // Inside a chroot the root is no mount point and can't be made private; then the disk is seen
  // outside as well, until it is unmounted.
  options.args = support::own_mounts();
  options.args.insert(options.args.end(),
                      {"sh", "-c",
                       "mount --make-rprivate / 2>/dev/null\n"
                       "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 99\n"
                       "(until [ -e \"$1/attempt/step-40/MANIFEST.json\" ]; do :; done\n"
                       " cat /dev/zero >\"$1/filler\" 2>/dev/null) &\n"
                       "\"$2\" --spec \"$3\" --attempt-dir \"$1/attempt\"; code=$?\n"
                       "cp -r \"$1/attempt\" \"$4\"; umount -l \"$1\"; exit $code",
                       "sh", disk, kTrainer, spec, directory_ / "kept"});
  options.stdout_file = directory_ / "out.txt";
  options.stderr_file = directory_ / "err.txt";
  auto full = base::Subprocess::start(options);
  ASSERT_TRUE(full.ok()) << full.status().to_string();
  EXPECT_EQ((*full)->wait(kPatienceMs)->code, 14) << text(directory_ / "err.txt");
  EXPECT_THAT(text(directory_ / "err.txt"), HasSubstr("No space left"));

  int last = 0;
  for (const auto& entry : fs::directory_iterator(directory_ / "kept")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && fs::exists(entry.path() / "MANIFEST.json"))
      last = std::max(last, std::stoi(name.substr(5)));
  }
  ASSERT_GE(last, 40);
  auto second = start();
  second["attempt"] = 2;
  second["checkpointDir"] = (directory_ / ("kept/step-" + std::to_string(last))).string();
  ASSERT_TRUE(alone(second, "after")->wait(kPatienceMs)->success()) << text(directory_ / "err.txt");
  EXPECT_TRUE(text(directory_ / "after/final/adapter_model.safetensors") ==
              text(directory_ / "straight/final/adapter_model.safetensors"));
}

// The library of products is part of the bits: the processor's own choice counts at the start only.
TEST_F(ProgramTest, GoesOnWithTheCheckpointsLibraryOfProducts) {
  const auto run = [&](const nlohmann::json& spec, const std::string& attempt,
                       const std::vector<std::string>& more) {
    const fs::path file = directory_ / (attempt + ".json");
    std::ofstream(file) << spec.dump();
    std::vector<std::string> args{"--spec", file.string(), "--attempt-dir",
                                  (directory_ / attempt).string()};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_TRUE(trainer(args)->wait(kPatienceMs)->success()) << text(directory_ / "err.txt");
    return text(directory_ / "err.txt");
  };
  for (const std::string library : {"libtorch", "openblas"}) {
    EXPECT_THAT(run(start(40), library, {"--gemm", library}),
                HasSubstr("products by " + library + ": asked for"));
    auto second = start(40);
    second["attempt"] = 2;
    second["checkpointDir"] = (directory_ / library / "step-20").string();
    EXPECT_THAT(run(second, library + "-2", {}),
                HasSubstr("products by " + library + ": the checkpoint was made with it"));
    EXPECT_TRUE(text(directory_ / library / "final/adapter_model.safetensors") ==
                text(directory_ / (library + "-2") / "final/adapter_model.safetensors"))
        << library;
    EXPECT_THAT(text(directory_ / "out.txt"), Not(HasSubstr("resume_not_exact")));
  }
  auto other = start(40);
  other["attempt"] = 3;
  other["checkpointDir"] = (directory_ / "openblas/step-20").string();
  run(other, "other", {"--gemm", "libtorch"});
  EXPECT_THAT(text(directory_ / "out.txt"), HasSubstr("products by openblas"));
}

TEST_F(ProgramTest, KilledInTheMiddleGoesOnFromItsCheckpointToTheSameWeights) {
  ASSERT_TRUE(alone(start(), "straight")->wait(kPatienceMs)->success())
      << text(directory_ / "err.txt");

  auto first = alone(start(), "attempt-1");
  const fs::path checkpoint = directory_ / "attempt-1/step-40";
  ASSERT_TRUE(eventually([&] { return fs::exists(checkpoint / "MANIFEST.json"); }));
  first->signal(SIGKILL);
  EXPECT_EQ(first->wait(kPatienceMs)->signal, SIGKILL);
  EXPECT_FALSE(fs::exists(directory_ / "attempt-1/final"));

  auto second = start();
  second["attempt"] = 2;
  second["checkpointDir"] = checkpoint.string();
  ASSERT_TRUE(alone(second, "attempt-2")->wait(kPatienceMs)->success())
      << text(directory_ / "err.txt");
  EXPECT_THAT(text(directory_ / "out.txt"), HasSubstr("resumed at step 40"));
  for (const char* file : {"final/adapter_model.safetensors", "step-400/optimizer.safetensors"}) {
    EXPECT_FALSE(text(directory_ / "straight" / file).empty());
    EXPECT_TRUE(text(directory_ / "straight" / file) == text(directory_ / "attempt-2" / file))
        << file;
  }
}

TEST_F(ProgramTest, SigtermSavesAndEndsWithSixteen) {
  auto process = alone(start(20000), "drained");
  ASSERT_TRUE(eventually([&] { return fs::exists(directory_ / "drained/step-20/MANIFEST.json"); }));
  process->signal(SIGTERM);
  EXPECT_EQ(process->wait(kPatienceMs)->code, 16);
  EXPECT_THAT(text(directory_ / "err.txt"), HasSubstr("stopped on request at step"));
}

// The agent's side of a socket pair.
class FramedTest : public ProgramTest {
 protected:
  FramedTest() {
    auto pair = base::FrameChannel::pair();
    channel_ = std::move(pair.value().first);
    base::Fd child = std::move(pair.value().second);
    process_ = trainer({"--frames-fd", "3"}, {child.get()});
  }

  void send_start(int updates) { send_start(start(updates)); }
  void send_start(nlohmann::json json) {
    json["attemptDir"] = (directory_ / "attempt-1").string();
    internal::TrainerCommand command;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(json.dump(), command.mutable_start()).ok());
    ASSERT_TRUE(channel_->write(command.SerializeAsString(), kPatienceMs).ok());
  }
  // The next report; nothing when the trainer has gone.
  std::optional<internal::TrainerReport> next() {
    const auto frame = channel_->read(kPatienceMs);
    internal::TrainerReport report;
    if (!frame.ok() || !report.ParseFromString(frame.value())) return std::nullopt;
    return report;
  }
  void send(const internal::TrainerCommand& command) {
    EXPECT_TRUE(channel_->write(command.SerializeAsString(), kPatienceMs).ok());
  }
  // Reads until the result, acting on each report.
  internal::TrainerReport::TrainerResult result(
      const std::function<void(const internal::TrainerReport&)>& seen = {}) {
    while (const auto report = next()) {
      if (seen) seen(*report);
      if (report->has_result()) return report->result();
    }
    ADD_FAILURE() << "no result: " << text(directory_ / "err.txt");
    return {};
  }

  std::unique_ptr<base::FrameChannel> channel_;
  std::unique_ptr<base::Subprocess> process_;
};

TEST_F(FramedTest, ReportsItsWayAndItsResult) {
  send_start(40);
  std::vector<std::string> types;
  int progress = 0, checkpoints = 0;
  double percentage = 0, longest_left_s = 0, left_s = -1;
  bool ready = false;
  const auto result = this->result([&](const internal::TrainerReport& report) {
    ready |= report.has_ready();
    progress += report.has_progress();
    if (report.progress().progress().total_steps() > 0) {
      const auto& figures = report.progress().progress();
      EXPECT_GE(figures.progress_percentage(), percentage);
      percentage = figures.progress_percentage();
      left_s = figures.estimated_remaining_seconds();
      longest_left_s = std::max(longest_left_s, left_s);
    }
    checkpoints += report.has_checkpoint();
    if (report.has_event()) {
      types.push_back(report.event().type());
      EXPECT_GT(report.event().create_time().seconds(), 0);
      EXPECT_NE(report.event().data_case(), dex::v1::FineTuningEvent::DATA_NOT_SET)
          << report.event().type();
    }
  });
  EXPECT_TRUE(ready);
  EXPECT_GT(progress, 0);
  EXPECT_EQ(percentage, 100);
  EXPECT_GT(longest_left_s, 0) << "an estimate while it runs";
  EXPECT_EQ(left_s, 0);
  EXPECT_EQ(checkpoints, 2);
  for (const char* type :
       {"validation_complete", "head_selection_complete", "training_start", "metrics",
        "checkpoint_save", "training_complete", "export_complete", "branch_verdict"}) {
    EXPECT_THAT(types, testing::Contains(type));
  }
  EXPECT_EQ(result.outcome(), internal::OUTCOME_SUCCESS) << result.message();
  EXPECT_EQ(result.result().uri(), (directory_ / "attempt-1/final").string());
  EXPECT_EQ(result.result().manifest_sha256().size(), 64u);
  EXPECT_EQ(result.result().adapter().form(), "paper");
  EXPECT_GT(result.result().metrics().trained_parameters(), 0);
  EXPECT_GT(result.result().metrics().gradient_range(), 0);
  EXPECT_EQ(process_->wait(kPatienceMs)->code, 0);
}

TEST_F(FramedTest, CancelsPausesAndAnswersCheckpointRequests) {
  send_start(100000);
  bool asked = false, stopped = false;
  const auto result = this->result([&](const internal::TrainerReport& report) {
    internal::TrainerCommand command;
    if (report.has_progress() && report.progress().progress().step() >= 3 && !asked) {
      asked = true;
      command.mutable_checkpoint()->set_request("one");
      send(command);
    }
    if (report.has_checkpoint() && report.checkpoint().request() == "one" && !stopped) {
      stopped = true;
      command.mutable_stop()->set_reason(internal::TrainerCommand::Stop::REASON_PAUSE);
      send(command);
    }
  });
  EXPECT_TRUE(stopped);
  EXPECT_EQ(result.outcome(), internal::OUTCOME_PAUSED);
  EXPECT_EQ(process_->wait(kPatienceMs)->code, 16);
}

TEST_F(FramedTest, CancelEndsWithoutACheckpoint) {
  send_start(100000);
  bool sent = false;
  const auto result = this->result([&](const internal::TrainerReport& report) {
    if (sent || !report.has_progress() || report.progress().progress().step() < 3) return;
    sent = true;
    internal::TrainerCommand command;
    command.mutable_stop()->set_reason(internal::TrainerCommand::Stop::REASON_CANCEL);
    send(command);
  });
  EXPECT_EQ(result.outcome(), internal::OUTCOME_CANCELLED);
  EXPECT_EQ(process_->wait(kPatienceMs)->code, 16);
}

TEST_F(FramedTest, EndsWhenTheAgentIsGone) {
  send_start(100000);
  while (const auto report = next()) {
    if (report->has_progress() && report->progress().progress().step() >= 3) break;
  }
  channel_.reset();
  EXPECT_TRUE(process_->wait(kPatienceMs).has_value());
}

// A job with a probe set and a third of its rows held out.
nlohmann::json watched(nlohmann::json start) {
  start["probePath"] = (kData / "rows.jsonl").string();
  start["spec"]["validationSplit"] = 0.34;
  start["spec"]["evaluation"]["everySteps"] = 5;
  return start;
}

TEST_F(FramedTest, GuardAndGatesReportTheirNumbers) {
  auto json = watched(start(10));
  json["spec"]["watchdog"]["baseGuard"]["klMax"] = 100;
  const nlohmann::json gate = {
      {"task", "base_guard"}, {"metric", "kl"}, {"op", "OP_LE"}, {"threshold", 100}};
  json["spec"]["gates"] = nlohmann::json::array({gate});
  send_start(json);
  std::vector<dex::v1::BaseGuard> guards;
  std::vector<dex::v1::GateResult> gates;
  const auto result = this->result([&](const internal::TrainerReport& report) {
    if (report.event().has_base_guard()) guards.push_back(report.event().base_guard());
    if (report.event().has_gate_result()) gates.push_back(report.event().gate_result());
  });
  ASSERT_EQ(result.outcome(), internal::OUTCOME_SUCCESS) << result.message();
  ASSERT_EQ(guards.size(), 3u);  // 0, 5, 10
  EXPECT_EQ(guards[0].kl(), 0);
  EXPECT_GT(guards[2].kl(), 0);
  EXPECT_EQ(guards[2].limit(), 100);
  EXPECT_EQ(guards[2].step(), 10u);
  EXPECT_GT(guards[2].tokens(), 0);
  EXPECT_NE(guards[2].probe_loss(), guards[2].probe_loss_base());
  EXPECT_EQ(result.result().metrics().base_kl(), guards[2].kl());
  ASSERT_EQ(gates.size(), 1u);
  EXPECT_EQ(gates[0].gate(), "base_guard.kl");
  EXPECT_TRUE(gates[0].passed());
  EXPECT_TRUE(gates[0].has_high());
  EXPECT_EQ(gates[0].on_fail(), "BLOCK_ALIAS");
  EXPECT_EQ(gates[0].condition(), "base_guard.kl <= 100, high end");
  ASSERT_EQ(result.result().gate_results_size(), 1);
  EXPECT_EQ(result.result().gate_results(0).SerializeAsString(), gates[0].SerializeAsString());
  EXPECT_TRUE(result.result().has_promotable());
}

TEST_F(FramedTest, ATrippedGuardEndsWithNineteen) {
  auto json = watched(start(10));
  json["spec"]["watchdog"]["baseGuard"]["klMax"] = 1e-9;
  send_start(json);
  const auto result = this->result();
  EXPECT_EQ(result.outcome(), internal::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(result.code(), "base_guard_tripped");
  EXPECT_EQ(process_->wait(kPatienceMs)->code, 19);
}

TEST_F(FramedTest, BadSpecsAndBadDataAreFinal) {
  internal::TrainerCommand command;
  command.mutable_start()->set_model_dir((kData / "model").string());
  command.mutable_start()->set_training_path((kData / "rows.jsonl").string());
  command.mutable_start()->set_attempt_dir((directory_ / "attempt-1").string());
  command.mutable_start()->mutable_spec()->mutable_hyperparameters()->set_learning_rate(0);
  send(command);
  const auto result = this->result();
  EXPECT_EQ(result.outcome(), internal::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(result.code(), "invalid_hyperparameter");
  EXPECT_EQ(result.param(), "hyperparameters.learning_rate");
  EXPECT_EQ(process_->wait(kPatienceMs)->code, 10);
}

}  // namespace
}  // namespace dex::train
