// Jobs about one adapter as the agent speaks them, over a real socket pair; and what a job that
// goes on from an imported adapter is told of it.
#include "worker/serve/artefact_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "services/base/clock.h"
#include "services/base/sha256.h"
#include "services/base/signals.h"
#include "services/base/subprocess.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_folder.h"
#include "worker/serve/evaluation_frames.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using internal::v1::ArtefactStart;
using internal::v1::TrainerCommand;
using internal::v1::TrainerReport;
using ::testing::HasSubstr;

constexpr int64_t kArtefactPatience_ms = 120'000;

class ArtefactFramesTest : public ::testing::Test {
 protected:
  ArtefactFramesTest() {
    testing::write_tiny_model(dir / "model");
    testing::write_tiny_adapter(dir / "adapter", dir / "model");
    testing::write_foreign_adapter(dir / "foreign");
    std::filesystem::create_directories(dir / "attempt-1");
  }

  ArtefactStart start() {
    ArtefactStart start;
    start.set_job_id("import-1");
    start.set_model_dir((dir / "model").string());
    start.set_base_model_name("tiny");
    start.set_attempt_dir((dir / "attempt-1").string());
    return start;
  }
  ArtefactStart import_of(const std::string& folder) {
    ArtefactStart start = this->start();
    start.mutable_adapter_import()->set_path((dir / folder).string());
    return start;
  }
  // Plays the agent until the last frame; the exit code too.
  std::pair<TrainerReport::TrainerResult, int> run(const ArtefactStart& start) {
    auto pair = base::FrameChannel::pair();
    EXPECT_TRUE(pair.ok());
    auto& agent = *pair->first;
    base::FrameChannel engine(std::move(pair->second));
    int exit = -1;
    std::jthread program([&] { exit = run_evaluation_frames(engine, signals, clock); });
    TrainerCommand command;
    *command.mutable_artefact() = start;
    EXPECT_TRUE(agent.write(command.SerializeAsString(), kArtefactPatience_ms).ok());
    TrainerReport report;
    while (!report.has_result()) {
      const auto frame = agent.read(kArtefactPatience_ms);
      if (!frame.ok() || !report.ParseFromString(*frame)) {
        ADD_FAILURE() << frame.status().to_string();
        break;
      }
    }
    program.join();
    return {report.result(), exit};
  }

  support::TemporaryDirectory dir;
  base::StopSignals signals;
  base::SystemClock clock;
};

TEST_F(ArtefactFramesTest, AnImportTellsWhatItFound) {
  const auto [result, exit] = run(import_of("adapter"));
  EXPECT_EQ(exit, 0);
  ASSERT_EQ(result.outcome(), internal::v1::OUTCOME_SUCCESS) << result.message();
  EXPECT_EQ(result.result().uri(), (dir / "attempt-1/final").string());
  EXPECT_EQ(result.result().manifest_sha256(),
            base::sha256_file(dir / "attempt-1/final/checksums.json").value());
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir / "attempt-1/final"))
    bytes += static_cast<int64_t>(file.file_size());
  EXPECT_EQ(result.result().bytes(), bytes);
  const auto& adapter = result.result().adapter();
  EXPECT_EQ(adapter.method(), "dex");
  EXPECT_EQ(adapter.form(), "paper");
  EXPECT_EQ(adapter.train(), "kvo+dex");
  EXPECT_EQ(adapter.artifact_class(), "KVO");
  EXPECT_EQ(adapter.base_model(), "tiny");
  EXPECT_EQ(adapter.base_weights_sha256().size(), 64U);
  const auto& effect = result.result().branch_effect();
  EXPECT_EQ(effect.verdict(), pb::BranchEffect::VERDICT_UNSPECIFIED) << "nobody has measured it";
  ASSERT_EQ(effect.per_layer_size(), 2);
  EXPECT_EQ(effect.per_layer(1).lambda(), 0.4);
  EXPECT_EQ(result.result().made_as().dex().lambda().schedule(), pb::Lambda::SCHEDULE_CONSTANT);
}

TEST_F(ArtefactFramesTest, ARefusalSaysWhoseMatterItIs) {
  const auto [result, exit] = run(import_of("foreign"));
  EXPECT_EQ(exit, 10);
  EXPECT_EQ(result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(result.code(), "adapter_mismatch");
  EXPECT_THAT(result.message(), HasSubstr("made for another base"));
  EXPECT_FALSE(std::filesystem::exists(dir / "attempt-1/final"));
}

TEST_F(ArtefactFramesTest, AnExportHasItsCertificate) {
  ArtefactStart start = this->start();
  auto& work = *start.mutable_adapter_export();
  work.set_dtype("bf16");
  work.mutable_adapter()->set_path((dir / "adapter").string());
  work.mutable_adapter()->set_content_sha256(
      base::sha256_file(dir / "adapter/checksums.json").value());
  const auto [result, exit] = run(start);
  EXPECT_EQ(exit, 0);
  ASSERT_EQ(result.outcome(), internal::v1::OUTCOME_SUCCESS) << result.message();
  const auto& certificate = result.result().certificate();
  EXPECT_EQ(certificate.dtype(), "bfloat16");
  EXPECT_EQ(certificate.tokens(), 64);
  EXPECT_TRUE(certificate.within_bound());
  EXPECT_EQ(certificate.base_weights_sha256().size(), 64U);
  EXPECT_TRUE(std::filesystem::exists(dir / "attempt-1/final/model.safetensors"));
}

// LibTorch's words for it are no reason to try the same again at a job's cost.
TEST_F(ArtefactFramesTest, AnAllocationThatFailsIsOutOfMemory) {
  testing::fail_allocation(1);
  const auto [result, exit] = run(import_of("adapter"));
  testing::fail_allocation(0);
  EXPECT_EQ(exit, 13);
  EXPECT_EQ(result.outcome(), internal::v1::OUTCOME_OOM) << result.message();
  EXPECT_EQ(result.code(), "out_of_memory");
}

// The program, at an export that gets no further: nobody writes into the pipe that it reads.
class ArtefactStopTest : public ArtefactFramesTest {
 protected:
  ArtefactStopTest() {
    std::filesystem::create_directories(dir / "waiting");
    EXPECT_EQ(::mkfifo((dir / "waiting/checksums.json").c_str(), 0600), 0);
    auto pair = base::FrameChannel::pair();
    EXPECT_TRUE(pair.ok());
    agent = std::move(pair->first);
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-engine").string();
    options.args = {"evaluation", "--frames-fd", "3"};
    options.inherit = {pair->second.get()};
    options.stdout_file = options.stderr_file = dir / "engine.log";
    program = base::Subprocess::start(options).value();
    TrainerCommand command;
    *command.mutable_artefact() = start();
    auto& work = *command.mutable_artefact()->mutable_adapter_export();
    work.mutable_adapter()->set_path((dir / "waiting").string());
    send(command);
    TrainerReport report;
    const auto frame = agent->read(kArtefactPatience_ms);
    EXPECT_TRUE(frame.ok() && report.ParseFromString(*frame) && report.has_ready());
  }
  void send(const TrainerCommand& command) {
    EXPECT_TRUE(agent->write(command.SerializeAsString(), kArtefactPatience_ms).ok());
  }
  void expect_stopped() {
    const auto exit = program->wait(kArtefactPatience_ms);
    ASSERT_TRUE(exit.has_value()) << "it still runs";
    EXPECT_EQ(exit->signal, 0);
    EXPECT_EQ(exit->code, 16);
  }

  std::unique_ptr<base::FrameChannel> agent;
  std::unique_ptr<base::Subprocess> program;
};

TEST_F(ArtefactStopTest, AStopFrameEndsItAtOnce) {
  TrainerCommand command;
  command.mutable_stop()->set_reason(TrainerCommand::Stop::REASON_DRAIN);
  send(command);
  expect_stopped();
}

TEST_F(ArtefactStopTest, ASignalEndsItAtOnce) {
  program->signal(SIGTERM);
  expect_stopped();
}

// What shape_of and lambda_of of scheduler/core/warm_start.cc read.
TEST(MadeAsTest, SaysWhatAJobThatGoesOnMustHaveAlike) {
  ImportedAdapter adapter;
  adapter.options.form = model::Form::kHeadMean;
  adapter.options.projection = model::Projection::kBottleneck;
  adapter.options.bottleneck_scope = model::BottleneckScope::kDense;
  adapter.options.bottleneck_activation = model::Activation::kSilu;
  adapter.options.width_ratio = 2;
  adapter.options.sign = model::Sign::kPlus;
  adapter.options.train = model::Train::kLoraDex;
  adapter.options.lora = {.r = 3, .alpha = 5, .targets = {model::Linear::kK}, .rslora = true};
  adapter.options.soft_floor = 0.25;
  adapter.options.first_layer = 1;
  adapter.options.lambda.schedule = model::Schedule::kPaperEq4;
  const auto spec = made_as(adapter);
  EXPECT_EQ(spec.hyperparameters().first_layer(), 1U);
  const auto& dex = spec.dex();
  EXPECT_EQ(dex.form(), pb::DexMethod::FORM_HEAD_MEAN);
  EXPECT_EQ(dex.projection(), pb::DexMethod::PROJECTION_BOTTLENECK);
  EXPECT_EQ(dex.bottleneck().scope(), pb::DexMethod::Bottleneck::SCOPE_DENSE);
  EXPECT_EQ(dex.bottleneck().activation(), pb::DexMethod::Bottleneck::ACTIVATION_SILU);
  EXPECT_EQ(dex.bottleneck().width_ratio(), 2);
  EXPECT_EQ(dex.sign(), pb::DexMethod::SIGN_PLUS);
  EXPECT_EQ(dex.train(), pb::DexMethod::TRAIN_LORA_DEX);
  EXPECT_EQ(dex.lora().r(), 3U);
  EXPECT_EQ(dex.lora().target_modules(0), "k_proj");
  EXPECT_TRUE(dex.lora().use_rslora());
  EXPECT_EQ(dex.head_selection().soft_floor(), 0.25);
  EXPECT_EQ(dex.lambda().schedule(), pb::Lambda::SCHEDULE_LEARNED);
}

TEST(MadeAsTest, KnowsTheMethodsWithoutABranch) {
  ImportedAdapter adapter;
  adapter.options.form = model::Form::kNone;
  adapter.options.train = model::Train::kKvoOnly;
  EXPECT_TRUE(made_as(adapter).has_kvo_only());
  adapter.options.train = model::Train::kAdapter;
  adapter.options.adapter = {.size = 6, .placement = model::Placement::kMlp};
  EXPECT_EQ(made_as(adapter).adapter().size(), 6U);
  EXPECT_EQ(made_as(adapter).adapter().placement(), pb::AdapterMethod::PLACEMENT_MLP);
  adapter.options.train = model::Train::kLora;
  EXPECT_TRUE(made_as(adapter).has_lora());
  EXPECT_FALSE(made_as(adapter).has_hyperparameters());
}

}  // namespace
}  // namespace dex::serve
