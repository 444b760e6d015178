// P19: who serves outlives who plans. P20: an engine that dies takes nothing along but the requests
// that it was answering. The real engine and trainer, on a tiny model.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using testing::IsEmpty;

using InferenceStub = v1::InferenceService::Stub;

// Asks models in turn, one short stream after the other, and notes what fails.
class SteadyStreams {
 public:
  SteadyStreams(std::string server, std::vector<std::string> models)
      : server_(std::move(server)), models_(std::move(models)) {
    for (size_t i = 0; i < 4; ++i) {
      threads_.emplace_back([this, i](const std::stop_token& stop) { run(i, stop); });
    }
  }
  [[nodiscard]] int whole() const { return whole_; }
  std::vector<std::string> finish() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
    return failures_;
  }

 private:
  void run(size_t i, const std::stop_token& stop) {
    const auto stub = v1::InferenceService::NewStub(rpc::channel(server_));
    const auto request = support::generation(models_[i % models_.size()], 24);
    while (!stop.stop_requested()) {
      grpc::ClientContext context;
      rpc::set_timeout(context, std::chrono::seconds(60));
      const auto reader = stub->GenerateStream(&context, request);
      v1::GenerateStreamResponse message;
      bool finished = false;
      while (reader->Read(&message)) finished = finished || message.has_finish();
      const auto status = rpc::from_grpc(reader->Finish());
      if (status.ok() && finished) {
        ++whole_;
        continue;
      }
      const std::lock_guard lock(mutex_);
      failures_.push_back(status.to_string());
    }
  }

  const std::string server_;
  const std::vector<std::string> models_;
  std::atomic<int> whole_ = 0;
  std::mutex mutex_;
  std::vector<std::string> failures_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

// Streams that are all open at the same time, and when and why each ended.
class OpenStreams {
 public:
  OpenStreams(const std::string& server, const std::string& model, size_t count) : ends_(count) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, server, model, i] { run(server, model, ends_[i]); });
    }
  }
  struct End {
    base::Status status;
    int64_t at_ms = 0;  // steady clock
  };
  // Every one of them has had a token.
  bool open() {
    return eventually([this] { return begun_ == static_cast<int>(threads_.size()); });
  }
  const std::vector<End>& ends() {
    threads_.clear();
    return ends_;
  }

 private:
  void run(const std::string& server, const std::string& model, End& end) {
    const auto stub = v1::InferenceService::NewStub(rpc::channel(server));
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(120));
    const auto reader = stub->GenerateStream(&context, support::generation(model, 900));
    v1::GenerateStreamResponse message;
    bool begun = false;
    while (reader->Read(&message)) {
      if (!begun && message.has_delta()) ++begun_;
      begun = begun || message.has_delta();
    }
    end.status = rpc::from_grpc(reader->Finish());
    end.at_ms = base::SystemClock().steady_ms();
  }

  std::atomic<int> begun_ = 0;
  std::vector<End> ends_;
  std::vector<std::jthread> threads_;
};

class ServingTest : public testing::Test {
 protected:
  ServingTest()
      : platform_({.trainer = support::real_trainer(), .engine = support::real_engine()}),
        inference_(v1::InferenceService::NewStub(rpc::channel(platform_.grpc()))) {}

  // tests/e2e/small_job.h, for this client.
  v1::CreateFineTuningJobRequest real_job(uint32_t steps) {
    auto request = platform_.request("real", steps, /*checkpoint_every=*/100);
    auto& spec = *request.mutable_spec();
    spec.set_validation_file(platform_.validation_file());
    auto& calibration = *spec.mutable_dex()->mutable_head_selection()->mutable_calibration();
    calibration.set_n_sequences(2);
    calibration.set_seq_length(128);
    spec.mutable_evaluation()->set_max_tokens(384);
    spec.mutable_evaluation()->set_every_steps(6);
    return request;
  }
  std::string start_job(uint32_t steps) {
    const auto job = platform_.api().create_job(real_job(steps));
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? job->id() : "";
  }
  // A job from its start to its adapter's id.
  std::string train() {
    const std::string id = start_job(6);
    EXPECT_TRUE(platform_.becomes(id, "SUCCEEDED", 240'000)) << platform_.record(id)["why"];
    return platform_.record(id)["adapter"];
  }
  base::Status answers(const std::string& model) {
    return support::ask(*inference_, &InferenceStub::Generate, support::generation(model, 2),
                        60'000)
        .status();
  }
  // From now until the model answers, in s.
  double until_it_answers(const std::string& model, int64_t limit_ms = 120'000) {
    const base::SystemClock clock;
    const int64_t began_ms = clock.steady_ms();
    EXPECT_TRUE(eventually([&] { return answers(model).ok(); }, limit_ms));
    return clock.seconds_since(began_ms);
  }
  std::vector<pid_t> engines() { return platform_.agent().children("dex-engine"); }

  ChaosPlatform platform_;
  std::unique_ptr<InferenceStub> inference_;
};

TEST_F(ServingTest, InferenceOutlivesSchedulerAndRedis) {
  const std::string adapter = train();
  ASSERT_TRUE(answers(adapter).ok());
  const auto engines_before = engines();
  ASSERT_EQ(engines_before.size(), 1U);
  SteadyStreams streams(platform_.grpc(), {support::kTinyModel, adapter});
  ASSERT_TRUE(eventually([&] { return streams.whole() >= 4; }));

  platform_.scheduler().kill();
  platform_.redis().kill();
  const int before = streams.whole();
  support::expect_refused_submit(platform_);
  support::pass_time(support::long_form() ? 600'000 : 9'000);
  EXPECT_GE(streams.whole(), before + 4) << "nobody is answered during the outage";
  platform_.redis().start();
  platform_.scheduler().start();
  ASSERT_TRUE(platform_.ready());
  // The settle window is over without a route lost, and a new adapter becomes visible.
  ASSERT_TRUE(platform_.settled());
  const std::string newer = train();
  const double visible_s = until_it_answers(newer);
  EXPECT_LT(visible_s, 3 * 5.0);
  support::figure("P19", "new_adapter_visible_s", visible_s);
  EXPECT_THAT(streams.finish(), IsEmpty());
  support::figure("P19", "streams_answered", streams.whole());
  EXPECT_EQ(engines(), engines_before) << "the engine was started again";
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(ServingTest, ADeadEngineTakesOnlyItsRequestsAlong) {
  const std::string adapter = train();
  const std::string training = start_job(100'000);
  ASSERT_TRUE(platform_.reaches(training, 1, 240'000));
  const base::SystemClock clock;
  double slowest_end_s = 0, slowest_return_s = 0;
  const int rounds = support::long_form() ? 20 : 1;
  for (int round = 0; round < rounds; ++round) {
    OpenStreams streams(platform_.grpc(), adapter, 32);
    ASSERT_TRUE(streams.open());
    const auto engine = engines();
    ASSERT_EQ(engine.size(), 1U);
    ASSERT_EQ(::kill(engine.front(), SIGKILL), 0);
    const int64_t killed_ms = clock.steady_ms();
    const double back_s = until_it_answers(adapter, 240'000);
    // Its back-off doubles with every death, so only the first returns are promised to be quick.
    if (round < 2) slowest_return_s = std::max(slowest_return_s, back_s);
    for (const auto& end : streams.ends()) {
      EXPECT_EQ(end.status.code(), base::Code::kUnavailable) << end.status.to_string();
      EXPECT_EQ(end.status.reason(), "ENGINE_LOST");
      slowest_end_s = std::max(slowest_end_s, static_cast<double>(end.at_ms - killed_ms) / 1000);
    }
  }
  support::figure("P20", "requests_failed_max_s", slowest_end_s);
  support::figure("P20", "engine_back_max_s", slowest_return_s);
  EXPECT_LT(slowest_end_s, 3 * 1.0);
  EXPECT_LT(slowest_return_s, 3 * 5.0);
  EXPECT_EQ(platform_.number(training, "attempt"), 1) << "the job beside it lost its lease";
  EXPECT_EQ(platform_.scheduler().metric("dex_lease_lost_total"), 0);
  EXPECT_TRUE(platform_.api().cancel_job(training).ok());
  EXPECT_TRUE(platform_.becomes(training, "CANCELLED"));
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
