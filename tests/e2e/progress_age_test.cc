// How old what a job shows is (api.md, C26), on the platform with its usual settings.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string>

#include "services/base/clock.h"
#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::RunningPlatform;

constexpr int64_t kOldest_ms = 10'000;
constexpr int64_t kMeasured_ms = 25'000;  // several heartbeats, whatever their time apart

// "2026-11-30T22:56:14.250Z" → Unix milliseconds; −1: it is none.
int64_t unix_ms(const std::string& text) {
  std::tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return -1;
  const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0;
  return int64_t{timegm(&parts)} * 1000 + static_cast<int64_t>(fraction * 1000);
}

// Every look asks for the job as a user does, and counts from after the answer: what the user has
// then is as old.
TEST(ProgressAgeTest, WhatARunningJobShowsIsAtMostTenSecondsOld) {
  support::TemporaryDirectory directory;
  RunningPlatform platform(directory / "data", support::write_tiny_model(directory / "models"));
  platform.start();
  const std::string rows = platform.upload_rows("code", "train", 20);
  // Far more updates than are waited for; nothing but updates happens meanwhile.
  auto args = support::small_job(rows, "", /*steps=*/1'000'000, support::kTinyModel);
  args = support::with(std::move(args), {"--set", "evaluation.every_steps=1000000", "--set",
                                         "checkpoints.every_steps=1000000"});
  const std::string id = platform.ctl(args).json().at("id");
  const auto job = [&] { return platform.ctl({"jobs", "get", id}).json(); };
  ASSERT_TRUE(support::eventually(
      [&] {
        const auto now = job();
        return now.at("phase") == "JOB_PHASE_TRAINING" && now.at("progress").at("step") > 0;
      },
      240'000));

  const base::SystemClock clock;
  const int64_t until_ms = clock.steady_ms() + kMeasured_ms;
  int64_t oldest_ms = 0;
  std::set<int64_t> shown;
  while (clock.steady_ms() < until_ms) {
    const auto now = job();
    ASSERT_EQ(now.at("state"), "JOB_STATE_RUNNING");
    const int64_t made_ms = unix_ms(now.at("progress").at("last_updated_time"));
    ASSERT_GT(made_ms, 0);
    oldest_ms = std::max(oldest_ms, clock.now_ms() - made_ms);
    shown.insert(made_ms);
    ::poll(nullptr, 0, 100);  // the rate at which it is looked at
  }
  EXPECT_LE(oldest_ms, kOldest_ms);
  EXPECT_GE(shown.size(), 3u) << "it went on, and was told";
  EXPECT_EQ(platform.ctl({"jobs", "cancel", id}).code, 0);
}

}  // namespace
}  // namespace dex
