// A platform that is worn: jobs are submitted, run, watched and deleted for a long time, those that
// succeed beside those that are cancelled and those that crash. Then nothing of them is left: no
// key, no file, no descriptor, no process.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/soak/remains.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/paths.h"
#include "tests/support/sanitizer.h"
#include "tests/support/temporary_directory.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::Remains;
using testing::IsEmpty;

// What a cycle does with its job, and how that ends.
struct Fate {
  const char* manner;  // as in toy_trainer.cc
  uint32_t steps;
  bool cancel;
  v1::JobState end;
};
constexpr Fate kTrained{"ms-1", 4, false, v1::JOB_STATE_SUCCEEDED};
constexpr Fate kCancelled{"ms-20", 100'000, true, v1::JOB_STATE_CANCELLED};
constexpr Fate kPoison{"ms-1.abort-1", 4, false, v1::JOB_STATE_FAILED};
constexpr size_t kJobsARound = 4;
// Those that run at the same time; each round has a training file of its own.
constexpr const Fate* kRounds[][kJobsARound] = {{&kTrained, &kTrained, &kTrained, &kCancelled},
                                                {&kTrained, &kTrained, &kPoison, &kTrained}};

class SoakTest : public testing::Test {
 protected:
  SoakTest() : platform_({.agents = 2, .beat_ms = 200}) {}

  void run_rounds(int count) {
    for (int i = 0; i < count && !HasFailure(); ++i) {
      run_round(kRounds[static_cast<size_t>(i) % std::size(kRounds)]);
    }
  }

  void run_round(const Fate* const (&fates)[kJobsARound]) {
    const std::string file = upload();
    std::vector<std::string> ids;
    for (const Fate* fate : fates) ids.push_back(submit(*fate, file));
    for (size_t i = 0; i < kJobsARound; ++i) {
      if (!fates[i]->cancel) continue;
      EXPECT_TRUE(platform_.becomes(ids[i], "RUNNING")) << ids[i];
      EXPECT_TRUE(platform_.api().cancel_job(ids[i]).ok());
    }
    for (size_t i = 0; i < kJobsARound; ++i) {
      EXPECT_EQ(end_of(ids[i]), fates[i]->end) << fates[i]->manner << " " << ids[i];
      const auto deleted = platform_.api().delete_job(ids[i], /*with_adapter=*/true);
      EXPECT_TRUE(deleted.ok()) << deleted.status().to_string();
    }
    const auto deleted = platform_.api().delete_file(file);
    EXPECT_TRUE(deleted.ok()) << deleted.status().to_string();
  }

  // Bytes that no other file has, so that they have to go with it.
  std::string upload() {
    std::ifstream source(support::deps_dir() / "data/code.train.jsonl");
    const auto path = directory_ / "rows.jsonl";
    std::ofstream rows(path);
    std::string line;
    for (int i = 0; i < 20 && std::getline(source, line); ++i) {
      auto row = nlohmann::json::parse(line);
      row["text"] = row["text"].get<std::string>() + "\n# " + std::to_string(files_);
      rows << row.dump() << "\n";
    }
    rows.close();
    ++files_;
    const auto file = platform_.api().upload_file(path, {});
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? file->id() : "";
  }
  std::string submit(const Fate& fate, const std::string& file) {
    auto request = platform_.request(fate.manner, fate.steps, /*checkpoint_every=*/4);
    request.mutable_spec()->set_training_file(file);
    const auto job = platform_.api().create_job(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? job->id() : "";
  }
  // As a watcher is told.
  v1::JobState end_of(const std::string& id) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    const auto end = platform_.api().watch_job(id, 0, [&](const auto& message) {
      if (message.has_snapshot()) state = message.snapshot().state();
      return true;
    });
    EXPECT_TRUE(end.ok()) << end.to_string();
    return state;
  }

  // When nothing is under way any more: connections and children end a moment after their jobs.
  Remains at_rest() {
    EXPECT_TRUE(support::eventually([&] {
      const Remains now = support::remains_of(platform_);
      return std::all_of(now.processes.begin(), now.processes.end(),
                         [](const auto& process) { return process.second.children == 0; });
    })) << "a process is left behind";
    return support::remains_of(platform_);
  }

  const support::TemporaryDirectory directory_;
  ChaosPlatform platform_;
  int files_ = 0;
};

// Pools of connections and threads may have grown to what they may be; that is no leak, and a leak
// of one a job is more.
int allowed_growth(const std::string& process) {
  return process == "redis" || process.starts_with("scheduler") ? 30 : 10;
}

TEST_F(SoakTest, CyclesOfSubmitRunAndDeleteLeaveNothingBehind) {
  const int rounds = support::long_form() ? 250 : 12;
  run_rounds(2);  // after these all has been made that stays
  const Remains before = at_rest();
  const base::SystemClock clock;
  const int64_t began_ms = clock.steady_ms();
  run_rounds(rounds);
  ASSERT_FALSE(HasFailure());
  const auto cycles = static_cast<double>(static_cast<size_t>(rounds) * kJobsARound);
  support::figure("soak", "cycles", cycles);
  support::figure("soak", "cycle_mean_s", clock.seconds_since(began_ms) / cycles);

  const Remains after = at_rest();
  EXPECT_THAT(support::difference(before.keys, after.keys), IsEmpty());
  EXPECT_THAT(support::difference(before.files, after.files), IsEmpty());
  EXPECT_THAT(support::immortal_requests(platform_.redis()), IsEmpty());
  double grown_mib = 0;
  for (const auto& [name, now] : after.processes) {
    const Remains::Held& then = before.processes.at(name);
    EXPECT_LE(now.descriptors, then.descriptors + allowed_growth(name)) << name;
    EXPECT_LE(now.threads, then.threads + allowed_growth(name)) << name;
    // Redis keeps every event here, and each request_id for a day.
    if (name != "redis") grown_mib = std::max(grown_mib, now.resident_mib - then.resident_mib);
  }
  support::figure("soak", "memory_growth_max_mib", grown_mib);
  if (support::long_form() && !support::kSanitized) EXPECT_LT(grown_mib, 100);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
