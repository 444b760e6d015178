// The data directory on a disk that is really full, under the real trainer: its checkpoint is
// refused by the kernel, not by a fake. What was there before stays whole, nobody claims while
// there is no room, and the job goes on from its last checkpoint (jobs.md §6, §7; P7, P14).
#include <gmock/gmock.h>

#include <fstream>
#include <string>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/artefacts.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_directory.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using testing::IsEmpty;

class FullDataDirectoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { support::enter_own_mounts(); }
  FullDataDirectoryTest() : disk_(directory_ / "disk", 64 << 20), platform_(options()) {}

  ChaosPlatform::Options options() {
    ChaosPlatform::Options options;
    options.beat_ms = 200;  // so that the store knows of checkpoints soon
    options.trainer = support::real_trainer();
    options.data_dir = disk_.folder() / "data";
    return options;
  }
  // Of the agent, as its metrics say.
  bool says(const std::string& state) {
    return platform_.agent().metric("dex_worker_state", "state=\"" + state + "\"") == 1;
  }
  // A file of rows, on another disk.
  std::string rows() {
    const auto file = directory_ / "rows.jsonl";
    std::ofstream out(file);
    for (int i = 0; i < 2'000; ++i) {
      out << R"({"text": "row )" << i << " " << std::string(100, 'x') << "\"}\n";
    }
    return file;
  }

  support::TemporaryDirectory directory_;
  support::SmallDisk disk_;
  ChaosPlatform platform_;
};

TEST_F(FullDataDirectoryTest, CostsNoCheckpointAndNoRetryAndTheJobGoesOnWhenThereIsRoom) {
  const auto job =
      platform_.api().create_job(support::real_job(platform_, 40, /*checkpoint_every=*/5));
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const std::string id = job->id();
  ASSERT_TRUE(eventually([&] { return platform_.number(id, "ckpt_step") >= 5; }, 120'000));
  disk_.fill();

  ASSERT_TRUE(eventually([&] { return platform_.number(id, "fulls") == 1; }))
      << "the job is " << platform_.state(id) << ", " << platform_.record(id)["why"];
  EXPECT_EQ(platform_.state(id), "READY");
  EXPECT_TRUE(eventually([&] { return says("disk_full"); }));
  const int64_t acknowledged = platform_.number(id, "ckpt_step");
  EXPECT_GE(acknowledged, 5);
  EXPECT_THAT(support::torn_artefacts(platform_.data_dir()), IsEmpty());
  disk_.fill();  // also what the broken checkpoint gave back
  const auto refused = platform_.api().upload_file(rows(), {});
  EXPECT_EQ(refused.status().reason(), "STORAGE_FULL") << refused.status().to_string();
  EXPECT_EQ(platform_.number(id, "attempt"), 1) << "claimed where there is no room";

  const base::SystemClock clock;
  const int64_t room_ms = clock.steady_ms();
  disk_.make_room();
  ASSERT_TRUE(
      eventually([&] { return platform_.number(id, "ckpt_step") > acknowledged; }, 120'000));
  support::figure("P14", "next_checkpoint_after_full_disk_s", clock.seconds_since(room_ms));
  EXPECT_TRUE(platform_.becomes(id, "SUCCEEDED", 240'000)) << platform_.record(id)["why"];
  EXPECT_EQ(platform_.last_event(id, "training_start").training_start().resumed_from_step(),
            acknowledged);
  EXPECT_EQ(platform_.number(id, "attempt"), 2);
  EXPECT_EQ(platform_.number(id, "fulls"), 1);
  EXPECT_EQ(platform_.number(id, "failures"), 0);
  EXPECT_EQ(platform_.number(id, "crashes"), 0);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
