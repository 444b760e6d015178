// What a kill -9 leaves between bytes on the disk and records in the store, made by hand, and what
// the next start makes of it. The scheduler's own janitor runs; nothing here calls it.
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "scheduler/server/blob_store.h"
#include "scheduler/server/leftovers.h"
#include "services/base/clock.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "services/base/sha256.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;
using support::eventually;

class RecoveryTest : public SchedulerTest {
 protected:
  RecoveryTest() : store_(store_options()), records_(store_), layout_(directory_ / "data") {}

  store::Store::Options store_options() {
    store::Store::Options options;
    options.redis.address = redis_.address();
    return options;
  }
  fs::path blob(const std::string& sha256) {
    return directory_ / "data" / DataLayout::blob(sha256);
  }
  // Where a drop has them, each under a name of its own.
  fs::path aside(const std::string& sha256) { return layout_.upload(sha256 + ".1.dropped"); }
  v1::File file(const std::string& id) {
    v1::GetFileRequest request;
    request.set_id(id);
    const auto file = call(*files_, &FileStub::GetFile, request);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *file : v1::File();
  }
  // The scheduler is stopped, the disk or the store changed, and it is started again.
  void while_down(const std::function<void()>& change) {
    scheduler_.reset();
    change();
    restart();
  }
  // The janitor starts with the scheduler and works beside it.
  static void make_old(const fs::path& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(25));
  }

  store::Store store_;
  store::FileRepository records_;
  DataLayout layout_;
};

TEST_F(RecoveryTest, ADeleteKilledAfterItsRecordIsFinished) {
  const auto first = file(upload_good(20));
  while_down([&] { ASSERT_TRUE(records_.remove("default", first.id())->last); });
  EXPECT_TRUE(eventually([&] { return !fs::exists(blob(first.sha256())); }));

  const auto second = file(upload_good(21));
  while_down([&] {
    ASSERT_TRUE(records_.remove("default", second.id())->last);
    fs::rename(blob(second.sha256()), aside(second.sha256()));
  });
  EXPECT_TRUE(eventually([&] { return !fs::exists(aside(second.sha256())); }));
  EXPECT_FALSE(fs::exists(blob(second.sha256())));
}

TEST_F(RecoveryTest, BytesThatADeleteHeldWhenItWasKilledComeBackForOthers) {
  const auto kept = file(upload_good(20));
  while_down([&] { fs::rename(blob(kept.sha256()), aside(kept.sha256())); });
  EXPECT_TRUE(eventually([&] { return !fs::exists(aside(kept.sha256())); }));
  EXPECT_TRUE(fs::exists(blob(kept.sha256())));
  EXPECT_EQ(file(kept.id()).state(), v1::FILE_STATE_READY);
}

TEST_F(RecoveryTest, AnUploadKilledBeforeItsRecordLeavesNoBytes) {
  const std::string sha256 = base::sha256_hex("nobody's");
  while_down([&] {
    fs::create_directories(blob(sha256).parent_path());
    std::ofstream(blob(sha256)) << "nobody's";
    std::ofstream(blob(sha256).parent_path() / "README") << "not a blob: left alone";
  });
  EXPECT_TRUE(eventually([&] { return !fs::exists(blob(sha256)); }));
  EXPECT_TRUE(fs::exists(blob(sha256).parent_path() / "README"));
}

TEST_F(RecoveryTest, ARecordWithoutBytesSaysSoUntilTheyAreBack) {
  const auto lost = file(upload_good(20));
  const auto other = file(upload_good(21));
  const fs::path elsewhere = directory_ / "elsewhere";
  while_down([&] { fs::rename(blob(lost.sha256()), elsewhere); });
  ASSERT_TRUE(eventually([&] { return file(lost.id()).state() == v1::FILE_STATE_INVALID; }));
  const auto shown = file(lost.id());
  ASSERT_EQ(shown.findings_size(), 1);
  EXPECT_EQ(shown.findings(0).code(), "bytes_lost");
  EXPECT_EQ(shown.findings(0).hint(), "upload the file again");
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(lost.id());
  EXPECT_EQ(create(request).status().reason(), "FILE_INVALID");
  EXPECT_EQ(file(other.id()).state(), v1::FILE_STATE_READY);

  while_down([&] { fs::rename(elsewhere, blob(lost.sha256())); });
  EXPECT_TRUE(eventually([&] { return file(lost.id()).state() == v1::FILE_STATE_READY; }));
  EXPECT_EQ(file(lost.id()).findings_size(), lost.findings_size());
}

TEST_F(RecoveryTest, TemporariesOfDeadUploadsGoAfterADay) {
  const auto kept = file(upload_good(20));
  const fs::path dead = layout_.upload("dead.part");
  const fs::path alive = layout_.upload("alive.part");
  const fs::path findings = layout_.findings("file-" + std::string(26, '0'));
  while_down([&] {
    for (const auto& path : {dead, alive, findings}) std::ofstream(path) << "half";
    for (const auto& path : {dead, findings, layout_.findings(kept.id())}) make_old(path);
  });
  EXPECT_TRUE(eventually([&] { return !fs::exists(dead) && !fs::exists(findings); }));
  EXPECT_TRUE(fs::exists(alive)) << "somebody may still be writing";
  EXPECT_TRUE(fs::exists(layout_.findings(kept.id()))) << "its file has a record";
}

TEST_F(RecoveryTest, RepeatedRecoveryLosesNothingOfUploadsAndDeletesUnderWay) {
  std::string bytes;
  for (int i = 0; i < 20; ++i) bytes += row(i);
  std::atomic<bool> done{false};
  std::jthread janitor([&] {
    BlobStore blobs(layout_, records_);
    while (!done) {
      const auto recovered = blobs.recover();
      EXPECT_TRUE(recovered.ok()) << recovered.status().to_string();
    }
  });
  std::vector<std::jthread> users;
  for (int user = 0; user < 2; ++user) {
    users.emplace_back([&] {
      for (int i = 0; i < 15; ++i) {
        const auto file = upload(bytes);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        EXPECT_EQ(file->state(), v1::FILE_STATE_READY);
        v1::DeleteFileRequest request;
        request.set_id(file->id());
        EXPECT_TRUE(call(*files_, &FileStub::DeleteFile, request).ok());
      }
    });
  }
  users.clear();
  const auto kept = upload(bytes);
  done = true;
  janitor.join();
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(file(kept->id()).state(), v1::FILE_STATE_READY);
  EXPECT_TRUE(fs::exists(blob(kept->sha256())));
}

TEST_F(RecoveryTest, AttemptsThatNobodyNeedsGoADayAfterTheEnd) {
  store::JobRepository jobs(store_);
  enlist();
  const auto job = create_good();
  const auto first = claim().job();
  const fs::path abandoned = directory_ / "data" / first.attempt_dir();
  fs::create_directories(abandoned / "step-10");
  EXPECT_EQ(finish(first, iv1::OUTCOME_RELEASE), "READY");
  const auto second = claim().job();
  const fs::path published = directory_ / "data" / second.attempt_dir();
  ASSERT_NE(abandoned, published);
  const auto unknown = abandoned.parent_path().parent_path() / ("ftjob-" + std::string(26, '0'));
  fs::create_directories(unknown / "attempt-1");

  const auto now_ms = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const int64_t later_ms = now_ms() + kLeftoverAge_ms + 60'000;
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, later_ms, {}), 0) << "the job lives";
  EXPECT_EQ(finish_well(second), "SUCCEEDED");
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, now_ms(), {}), 0) << "it has just ended";
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, later_ms, {}), 1);
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(published / "final/checksums.json"));
  EXPECT_TRUE(fs::exists(unknown / "attempt-1")) << "of a job that this store does not know";
}

// A preview or probe leaves nothing that anybody asks for again: its whole folder goes.
TEST_F(RecoveryTest, FoldersOfPreviewsGoADayAfterTheyWereAskedFor) {
  store::JobRepository jobs(store_);
  const base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  store::NewJob preview;
  preview.kind = "head_selection";
  const std::string never_queued = ids.make("heads-");
  preview.id = ids.make("heads-");  // the younger one
  ASSERT_TRUE(jobs.submit("default", {{"r1", ""}, "", false, {preview}}).ok());
  const auto folder = [&](const std::string& id) { return layout_.all_jobs() / "default" / id; };
  for (const std::string& id : {preview.id, never_queued}) {
    fs::create_directories(folder(id) / "attempt-1");
    std::ofstream(folder(id) / "texts.jsonl") << "{}\n";
  }
  const int64_t asked_ms = base::ulid_time_ms(preview.id.substr(6));
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, asked_ms, {}), 0);
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, asked_ms + kLeftoverAge_ms, {}), 1);
  EXPECT_FALSE(fs::exists(folder(never_queued)));
  EXPECT_TRUE(fs::exists(folder(preview.id))) << "it still waits";
  ASSERT_TRUE(jobs.cancel("default", preview.id, "gone").ok());
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, asked_ms + kLeftoverAge_ms, {}), 1);
  EXPECT_FALSE(fs::exists(folder(preview.id)));

  const std::string probe = ids.make("probe-");
  fs::create_directories(folder(probe) / "attempt-1");
  const int64_t probed_ms = base::ulid_time_ms(probe.substr(6));
  EXPECT_EQ(*remove_needless_attempts(layout_, jobs, probed_ms + kLeftoverAge_ms, {}), 1);
  EXPECT_FALSE(fs::exists(folder(probe)));
}

}  // namespace
}  // namespace dex::server
