// SIGTERM under load, to each process in turn: every stream ends with the reason, the training job
// is given back with a checkpoint and pays nothing, and the process is gone in time (jobs.md §9,
// drain; P12).
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dex/v1/files.grpc.pb.h"
#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using testing::Each;
using testing::IsEmpty;

enum class Kind { kWatch, kUpload, kGeneration };
constexpr int kWatches = 100, kUploads = 20, kGenerations = 8;
constexpr const char* kDraining = "SERVER_DRAINING";

// Open calls of every kind. Each waits on a thread of its own for its end.
class Load {
 public:
  Load(const ChaosPlatform& platform, const std::string& job)
      : job_(job),
        jobs_(v1::FineTuningService::NewStub(rpc::channel(platform.grpc()))),
        files_(v1::FileService::NewStub(rpc::channel(platform.grpc()))),
        inference_(v1::InferenceService::NewStub(rpc::channel(platform.grpc()))) {
    for (int i = 0; i < kWatches; ++i) add(Kind::kWatch);
    for (int i = 0; i < kUploads; ++i) add(Kind::kUpload);
    for (int i = 0; i < kGenerations; ++i) add(Kind::kGeneration);
  }
  ~Load() {
    for (const auto& call : calls_) call->context.TryCancel();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // All have begun.
  bool open() {
    return eventually([this] {
      return std::all_of(calls_.begin(), calls_.end(),
                         [](const auto& call) { return call->begun.load(); });
    });
  }
  [[nodiscard]] bool is_open(Kind kind) const {
    return std::none_of(calls_.begin(), calls_.end(), [kind](const auto& call) {
      return call->kind == kind && call->ended.load();
    });
  }
  // What those of a kind were told at their end; "open" for one that has none after a while.
  std::vector<std::string> reasons(Kind kind) {
    std::vector<std::string> reasons;
    for (const auto& call : calls_) {
      if (call->kind != kind) continue;
      const bool ended = eventually([&] { return call->ended.load(); }, support::kPatience_ms);
      const bool told = ended && call->end.code() == base::Code::kUnavailable;
      reasons.push_back(told ? call->end.reason() : ended ? call->end.to_string() : "open");
    }
    return reasons;
  }

 private:
  struct Call {
    Kind kind;
    grpc::ClientContext context;
    std::atomic<bool> begun = false, ended = false;
    base::Status end;  // once `ended`
    std::jthread thread;
  };

  void add(Kind kind) {
    auto& call = *calls_.emplace_back(std::make_unique<Call>());
    call.kind = kind;
    rpc::set_timeout(call.context, std::chrono::seconds(120));
    call.thread = std::jthread([this, &call] {
      const grpc::Status end = call.kind == Kind::kWatch    ? watch(call)
                               : call.kind == Kind::kUpload ? upload(call)
                                                            : generate(call);
      call.end = rpc::from_grpc(end);
      call.ended = true;
    });
  }
  grpc::Status watch(Call& call) {
    v1::WatchFineTuningJobRequest request;
    request.set_id(job_);
    const auto reader = jobs_->WatchFineTuningJob(&call.context, request);
    v1::WatchFineTuningJobResponse message;
    while (reader->Read(&message)) call.begun = true;
    return reader->Finish();
  }
  grpc::Status upload(Call& call) {
    v1::File file;
    const auto writer = files_->UploadFile(&call.context, &file);
    v1::UploadFileRequest part;
    part.mutable_header()->set_filename("endless.jsonl");
    bool open = writer->Write(part);
    part.set_chunk("{\"text\": \"the first row\"}\n");
    open = open && writer->Write(part);
    call.begun = open;
    return writer->Finish();  // nothing more is sent: the server has the last word
  }
  grpc::Status generate(Call& call) {
    const auto reader =
        inference_->GenerateStream(&call.context, support::generation(support::kTinyModel, 100));
    v1::GenerateStreamResponse message;
    while (reader->Read(&message)) call.begun = true;
    return reader->Finish();
  }

  const std::string job_;
  const std::unique_ptr<v1::FineTuningService::Stub> jobs_;
  const std::unique_ptr<v1::FileService::Stub> files_;
  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::vector<std::unique_ptr<Call>> calls_;
};

class DrainTest : public testing::Test {
 protected:
  // A lease that outlasts a scheduler's restart, as the usual 30 s do.
  DrainTest()
      : platform_(
            {.times = {10'000, 6'000, 2'000, 0, 0, 9'000}, .engine = support::fake_engine()}) {
    job_ = platform_.submit("ms-20", 100'000, /*checkpoint_every=*/25);
  }
  ~DrainTest() override {
    for (const auto& [name, seconds] : slowest_) {
      support::figure("drain", name + "_max_s", seconds);
    }
  }

  static int rounds() { return support::long_form() ? 20 : 1; }
  // Routes and watches are back after a restart.
  void ready() {
    ASSERT_TRUE(platform_.ready());
    ASSERT_TRUE(platform_.becomes(job_, "RUNNING"));
    const auto inference = v1::InferenceService::NewStub(rpc::channel(platform_.grpc()));
    ASSERT_TRUE(eventually([&] {
      auto hello = support::generation(support::kTinyModel, 1);
      hello.set_prompt("hello");
      return support::ask(*inference, &v1::InferenceService::Stub::Generate, hello).ok();
    }));
  }
  // SIGTERM at a moment like any other; how it ended, and how long that took.
  int drain(Program& program) {
    support::pass_time(std::uniform_int_distribution<int>(0, 300)(random_));
    const int64_t asked_ms = clock_.steady_ms();
    const int code = program.stop(kHardLimit_ms);
    double& slowest = slowest_[program.name()];
    slowest = std::max(slowest, clock_.seconds_since(asked_ms));
    return code;
  }

  static constexpr int64_t kPromise_ms = 12'000, kHardLimit_ms = 3 * kPromise_ms;
  const base::SystemClock clock_{};
  std::mt19937 random_{7};
  std::map<std::string, double> slowest_;
  ChaosPlatform platform_;
  std::string job_;
};

TEST_F(DrainTest, ASchedulerEndsWatchesAndUploadsAndNothingElse) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    Load load(platform_, job_);
    ASSERT_TRUE(load.open());
    EXPECT_EQ(drain(platform_.scheduler()), 0);
    EXPECT_THAT(load.reasons(Kind::kWatch), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kUpload), Each(kDraining));
    EXPECT_TRUE(load.is_open(Kind::kGeneration));
    platform_.scheduler().start();
  }
  ready();
  EXPECT_EQ(platform_.number(job_, "attempt"), 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(DrainTest, AGatewayIsNotReadyWhileItWaitsForGenerations) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    Load load(platform_, job_);
    ASSERT_TRUE(load.open());
    Program& gateway = platform_.gateway();
    gateway.signal(SIGTERM);
    EXPECT_TRUE(eventually([&] { return gateway.running() && !gateway.ready(); }, 5'000))
        << "nobody should send it new work";
    EXPECT_TRUE(load.is_open(Kind::kGeneration));
    EXPECT_EQ(drain(gateway), 0);
    EXPECT_THAT(load.reasons(Kind::kWatch), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kUpload), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kGeneration), Each(kDraining));
    gateway.start();
  }
  ready();
  EXPECT_EQ(platform_.number(job_, "attempt"), 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(DrainTest, AnAgentGivesItsJobBackWithACheckpointAndNothingIsCharged) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    ASSERT_TRUE(platform_.reaches(job_, platform_.step(job_) + 10));
    Load load(platform_, job_);
    ASSERT_TRUE(load.open());
    const uint32_t step = platform_.step(job_);
    EXPECT_EQ(drain(platform_.agent()), 0);
    EXPECT_THAT(load.reasons(Kind::kGeneration), Each(kDraining));
    EXPECT_TRUE(load.is_open(Kind::kWatch));
    auto job = platform_.record(job_);
    EXPECT_EQ(job["state"], "READY");
    EXPECT_EQ(job["preempts"], std::to_string(round + 1));
    EXPECT_EQ(job["failures"], "0");
    EXPECT_EQ(job["crashes"], "0");
    EXPECT_GE(std::stoul(job["ckpt_step"]), step);
    EXPECT_EQ(job["ckpt_step"], std::to_string(platform_.step(job_)))
        << "a step was done and not saved";
    platform_.agent().start();
  }
  support::figure("P12", "agents_drained", rounds());
  // The toy goes on only from a checkpoint that is byte for byte and step for step what it was.
  ready();
  EXPECT_EQ(platform_.number(job_, "attempt"), rounds() + 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
