// What dexctl can do to jobs that exist, and what its doctor says, against the real processes.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "services/base/sha256.h"
#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;

// Many enough that a job still runs when it has been told something and has told of it.
constexpr int kSteps = 240;

class JobChangesTest : public testing::Test {
 protected:
  // Beats come fast: what is asked for reaches a trainer by the answer to one.
  JobChangesTest()
      : platform_(directory_ / "data", support::write_tiny_model(directory_ / "models"),
                  {{"DEX_BEAT_MS", "200"}, {"DEX_SWEEP_MS", "500"}}) {
    platform_.start();
    training_ = platform_.upload_rows("code", "train", 20);
    validation_ = platform_.upload_rows("code", "validation", 10);
  }

  // Saves its state on request only, and once at its end.
  std::vector<std::string> job(int steps) const {
    auto args = support::small_job(training_, validation_, steps, support::kTinyModel);
    return support::with(std::move(args),
                         {"--set", "checkpoints.every_steps=" + std::to_string(steps)});
  }
  nlohmann::json get(const std::string& id) { return platform_.ctl({"jobs", "get", id}).json(); }
  bool reaches(const std::string& id, int step) {
    return support::eventually([&] { return get(id).at("progress").at("step") >= step; }, 240'000);
  }
  // Steps from which the job's attempts began.
  std::vector<int> begun_at(const std::string& id) {
    std::istringstream events(platform_.ctl({"jobs", "events", id}).out);
    std::vector<int> steps;
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event.at("type") == "training_start")
        steps.push_back(event["training_start"]["resumed_from_step"]);
    }
    return steps;
  }
  std::string weights_of(const nlohmann::json& job, const std::string& folder) {
    const auto to = directory_ / folder;
    const Outcome outcome =
        platform_.ctl({"adapters", "download", job.at("fine_tuned_model"), to.string()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return base::sha256_file(to / "adapter_model.safetensors").value();
  }

  support::TemporaryDirectory directory_;
  RunningPlatform platform_;
  std::string training_, validation_;
};

TEST_F(JobChangesTest, ACheckpointAndAPauseCostNoStepAndChangeNoBit) {
  const auto straight = platform_.ctl(support::with(job(kSteps), {"--follow"})).json();
  ASSERT_EQ(straight.at("state"), "JOB_STATE_SUCCEEDED");

  const std::string id = platform_.ctl(job(kSteps)).json().at("id");
  ASSERT_TRUE(reaches(id, 3));
  const Outcome saved = platform_.ctl({"checkpoints", "create", id});
  ASSERT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(saved.json().at("id").get<std::string>(), testing::StartsWith("ftckpt-"));
  EXPECT_EQ(saved.json().at("state"), "STATE_READY");
  const int at_request = saved.json().at("step");
  EXPECT_GE(at_request, 3);

  const Outcome updated = platform_.ctl({"jobs", "update", id, "--name", "the second"});
  EXPECT_EQ(updated.json().at("display_name"), "the second") << updated.err;
  EXPECT_EQ(platform_.ctl({"jobs", "delete", id, "--yes"}).code, 3) << "it runs";
  EXPECT_EQ(platform_.ctl({"jobs", "delete", id}).code, 2) << "nobody can be asked";

  const Outcome paused = platform_.ctl({"jobs", "pause", id, "--wait"});
  ASSERT_EQ(paused.code, 0) << paused.err;
  ASSERT_EQ(paused.json().at("state"), "JOB_STATE_PAUSED") << paused.out;
  EXPECT_EQ(paused.json().at("pause_reason"), "PAUSE_REASON_USER");
  EXPECT_TRUE(
      support::eventually([&] { return platform_.processes("dex-trainer").empty(); }, 30'000));
  EXPECT_EQ(platform_.ctl({"checkpoints", "create", id}).code, 3) << "it does not run";
  const auto listed =
      platform_.ctl({"checkpoints", "list", id, "--limit", "1000"}).json().at("checkpoints");
  ASSERT_FALSE(listed.empty());
  EXPECT_EQ(listed.front().at("is_last"), true);
  EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&](const auto& each) {
    return each.at("step") == at_request && each.at("verified") == true;
  })) << listed;

  ASSERT_EQ(platform_.ctl({"jobs", "resume", id}).code, 0);
  const auto ended = platform_.ctl({"jobs", "watch", id}).json();
  EXPECT_EQ(ended.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(ended.at("attempt"), 2);
  const auto begun = begun_at(id);
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0], 0);
  EXPECT_GE(begun[1], at_request);
  EXPECT_EQ(weights_of(ended, "paused"), weights_of(straight, "straight"));
  EXPECT_EQ(platform_.ctl({"jobs", "redrive", id}).code, 3) << "it has not failed";
}

TEST_F(JobChangesTest, AHeldJobIsCheckedWaitsAndIsTheSameJobOnceItStarts) {
  const auto straight = platform_.ctl(support::with(job(6), {"--follow"})).json();
  ASSERT_EQ(straight.at("state"), "JOB_STATE_SUCCEEDED");

  const Outcome checked = platform_.ctl(support::with(job(6), {"--hold", "--follow"}));
  ASSERT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.json().at("state"), "JOB_STATE_PAUSED") << checked.out;
  EXPECT_EQ(checked.json().at("pause_reason"), "PAUSE_REASON_AWAITING_START");
  EXPECT_EQ(checked.json().at("last_checkpoint"), "");
  const std::string id = checked.json().at("id");
  EXPECT_TRUE(
      support::eventually([&] { return platform_.processes("dex-trainer").empty(); }, 30'000));
  EXPECT_TRUE(begun_at(id).empty()) << "nothing was trained";
  EXPECT_THAT(platform_.ctl({"jobs", "events", id}).out, HasSubstr("estimate_updated"));

  ASSERT_EQ(platform_.ctl({"jobs", "resume", id}).code, 0);
  const auto ended = platform_.ctl({"jobs", "watch", id}).json();
  EXPECT_EQ(ended.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(ended.at("attempt"), 2);
  EXPECT_EQ(begun_at(id), std::vector<int>{0});
  EXPECT_EQ(weights_of(ended, "held"), weights_of(straight, "straight"));
}

TEST_F(JobChangesTest, DeletedJobsAndAdaptersLeaveNothing) {
  const auto job = platform_.ctl(support::with(this->job(4), {"--follow"})).json();
  ASSERT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  const std::string id = job.at("id"), adapter = job.at("fine_tuned_model");
  const auto folder = platform_.data_dir() / "jobs/default" / id;
  ASSERT_TRUE(std::filesystem::exists(folder));
  ASSERT_EQ(platform_.ctl({"adapters", "load", adapter}).code, 0);
  const Outcome refused = platform_.ctl({"jobs", "delete", id, "--with-adapter", "--yes"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("ADAPTER_IN_USE"));
  ASSERT_EQ(platform_.ctl({"adapters", "unload", adapter}).code, 0);
  EXPECT_EQ(platform_.ctl({"jobs", "delete", id, "--yes"}).code, 0);
  EXPECT_EQ(platform_.ctl({"jobs", "get", id}).code, 3);
  EXPECT_EQ(platform_.ctl({"generate", adapter, "--prompt", "a", "--max-tokens", "2"}).code, 0)
      << "the adapter has stayed";
  ASSERT_EQ(platform_.ctl({"adapters", "delete", adapter, "--yes"}).code, 0);
  EXPECT_EQ(platform_.ctl({"adapters", "get", adapter}).code, 3);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(JobChangesTest, TheDoctorSaysWhatIsWellAndWhatCanBePromised) {
  // The gateway dials the worker once it has heard of it.
  EXPECT_TRUE(support::eventually([this] {
    return platform_.plain_ctl({"doctor"}).out.find("1 of 1 asked, all answer") !=
           std::string::npos;
  }));
  const Outcome page = platform_.plain_ctl({"doctor"});
  EXPECT_THAT(page.code, testing::AnyOf(0, 7)) << page.out << page.err;  // 7: a disk that is full
  for (const char* line :
       {"append-only file", "fsync", "always: what is acknowledged is on the", "eviction",
        "data directory", "scheduler and store", support::kTinyModel, "scheduler and workers",
        "What this setting promises", "survives the end of every process"}) {
    EXPECT_THAT(page.out, HasSubstr(line));
  }
  const auto health = platform_.ctl({"doctor"}).json();
  EXPECT_EQ(health.at("promises").at(0).at("kept"), true);
  EXPECT_EQ(health.at("checks").at(0).at("topic"), "server");

  platform_.stop();
  EXPECT_EQ(platform_.ctl({"doctor", "--timeout", "2"}).code, 4) << "nobody answers";
}

}  // namespace
}  // namespace dex
