#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/base/process_lock.h"
#include "tests/support/fake_scheduler.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "worker/agent/slot.h"

namespace dex::agent {

inline constexpr const char* kAttemptDir = "jobs/default/ftjob-1/attempt-5";

// A slot with its heartbeat against a scheduler on loopback, and trainers that are real processes.
class SlotTest : public testing::Test {
 protected:
  SlotTest()
      : registry_("worker", "0", "0"),
        metrics_(registry_),
        paths_(directory_.path()),
        disk_(directory_.path(), 0) {
    models_.push_back({"tiny", directory_ / "model", "aa", "bb", "cc"});
    attempt_.trainer.program = support::build_dir() / "tests/dex-fake-trainer";
    attempt_.evaluator.program = attempt_.trainer.program;
    attempt_.evaluator.args = {"evaluation"};
    attempt_.stop = {.stop_grace_ms = 20'000, .kill_grace_ms = 20'000};
    attempt_.look_ms = 20;
  }
  ~SlotTest() override { stop(); }

  void start() {
    client_ = std::make_unique<SchedulerClient>(scheduler_.address());
    Heartbeat::Options beat;
    beat.identity.set_worker_id("w1");
    beat.data_dir = directory_.path();
    beat.retry_ms = 20;
    heartbeat_ = std::make_unique<Heartbeat>(
        std::move(beat), *client_, attempts_,
        Heartbeat::Engines{[] { return std::vector<iv1::EngineStatus>{}; }, [](const auto&) {}},
        metrics_, clock_);
    Slot::Options options;
    options.worker_id = "w1";
    options.pools = {"cpu"};
    options.retry_ms = 20;
    options.lock_wait_ms = 50;
    options.lacking_wait_ms = 20;
    options.lock_file = directory_ / "slot.lock";
    options.attempt = attempt_;
    options.once = once_;
    options.once_idle_ms = once_idle_ms_;
    slot_ = std::make_unique<Slot>(options, *client_, *heartbeat_, attempts_, disk_, paths_,
                                   models_, metrics_, clock_, random_);
    beats_ = std::jthread([this](const std::stop_token& stop) { heartbeat_->run(stop); });
    thread_ = std::jthread([this] {
      slot_->run(drain_.get_token());
      returned_.set_value();
    });
  }
  void stop() {
    drain_.request_stop();
    if (thread_.joinable()) thread_.join();
    beats_ = {};
  }

  // A job whose trainer behaves so (tests/support/fake_trainer.cc).
  static iv1::ClaimedJob job_of(const std::string& behaviour) {
    iv1::ClaimedJob job;
    job.set_job_id("ftjob-1");
    job.set_epoch(5);
    job.set_attempt(2);
    job.mutable_spec()->set_model("tiny");
    job.mutable_spec()->set_suffix(behaviour);
    job.set_attempt_dir(kAttemptDir);
    job.set_tenant("default");
    job.mutable_training_input()->set_path("files/a.jsonl");
    return job;
  }
  void offer(const std::string& behaviour) { scheduler_.offer(job_of(behaviour)); }
  iv1::FinishRequest finished() {
    EXPECT_TRUE(scheduler_.wait(
        [](const support::FakeScheduler::Heard& h) { return !h.finishes.empty(); }));
    const auto heard = scheduler_.heard();
    return heard.finishes.empty() ? iv1::FinishRequest() : heard.finishes[0];
  }
  bool wait_for_step(uint32_t step) {
    return scheduler_.wait([&](const support::FakeScheduler::Heard& h) {
      return !h.stored_beats.empty() && h.stored_beats.rbegin()->second.progress().step() >= step;
    });
  }
  // No trainer is left: each has held the slot's lock.
  void expect_slot_free() { EXPECT_TRUE(base::lock_file(directory_ / "slot.lock").ok()); }

  support::TemporaryDirectory directory_;
  base::SystemClock clock_;
  base::SeededRandom random_{1};
  monitor::Registry registry_;
  WorkerMetrics metrics_;
  DataPaths paths_;
  DiskGate disk_;
  std::vector<BaseModelEntry> models_;
  Attempt::Options attempt_;
  bool once_ = false;
  int64_t once_idle_ms_ = 60'000;
  std::promise<void> returned_;  // set when run() has returned
  support::FakeScheduler scheduler_;
  AttemptList attempts_;
  std::unique_ptr<SchedulerClient> client_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Slot> slot_;
  std::stop_source drain_;
  std::jthread beats_;
  std::jthread thread_;
};

}  // namespace dex::agent
