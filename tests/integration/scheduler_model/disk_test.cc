// A disk that is really full under Redis: it exits, as jobs.md §8 says, and nothing that was
// acknowledged is lost (P1).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "scheduler/store/job_repository.h"
#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/invariants.h"
#include "tests/support/own_mounts.h"
#include "tests/support/temporary_directory.h"

namespace dex::model {
namespace {

namespace fs = std::filesystem;

// On a tmpfs of 8 MiB, 5 of which somebody else has filled. When Redis ends, there is room again
// and it is started again.
constexpr const char* kRedisOnASmallDisk =
    "mount --make-rprivate / 2>/dev/null\n"
    "mount -t tmpfs -o size=8m tmpfs \"$1\" || exit 99\n"
    "head -c 5M /dev/zero >\"$1/filler\"\n"
    "redis-server \"$2\"\n"
    "echo $? >\"$3\"\n"
    "rm \"$1/filler\"\n"
    "redis-server \"$2\"\n"
    "umount -l \"$1\"\n";

class DiskTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(directory_ / "disk");
    std::ofstream(directory_ / "redis.conf")
        << "port 0\nunixsocket " << socket() << "\nunixsocketperm 700\ndir "
        << (directory_ / "disk").string()
        << "\nappendonly yes\nappendfsync always\naof-load-truncated yes\nsave \"\"\n"
           "maxmemory 64mb\nmaxmemory-policy noeviction\nauto-aof-rewrite-percentage 0\n"
           "loglevel warning\nlogfile "
        << (directory_ / "redis.log").string() << "\n";
    base::Subprocess::Options options;
    options.program = "unshare";
    options.args = support::own_mounts();
    options.args.insert(options.args.end(),
                        {"sh", "-c", kRedisOnASmallDisk, "sh", (directory_ / "disk").string(),
                         (directory_ / "redis.conf").string(), (directory_ / "full").string()});
    options.stderr_file = directory_ / "err.txt";
    auto started = base::Subprocess::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    redis_ = std::move(started).value();
    store::Store::Options with;
    with.redis.address.unix_path = socket();
    with.redis.patience = std::chrono::seconds(20);
    store_ = std::make_unique<store::Store>(with);
  }
  std::string socket() { return (directory_ / "redis.sock").string(); }
  store::Reply call(const std::vector<std::string>& args) {
    auto reply = store_->command(args);
    if (!reply.ok()) throw std::runtime_error(reply.status().to_string());
    return std::move(reply).value();
  }

  support::TemporaryDirectory directory_;
  std::unique_ptr<base::Subprocess> redis_;
  std::unique_ptr<store::Store> store_;
};

TEST_F(DiskTest, AFullDiskEndsRedisAndLosesNothingThatWasAcknowledged) {
  call({"HSET", "dex:{s0}:cfg", "events_max", "0"});
  ASSERT_TRUE(store_->set_tenant("t", 1, 100000, 10, 0).ok());
  store::JobRepository jobs(*store_);
  std::vector<std::string> acknowledged;
  int after = 0;  // submits once there was room again
  for (int i = 0; i < 3000 && after < 5; ++i) {
    store::JobRepository::Submission submission;
    submission.request.id = submission.request.digest = "r" + std::to_string(i);
    submission.jobs.resize(1);
    submission.jobs[0].id = "ftjob-f" + std::to_string(i);
    submission.jobs[0].spec = std::string(8000, 's');
    const auto submitted = jobs.submit("t", submission);
    ASSERT_TRUE(submitted.ok()) << submitted.status().to_string();
    acknowledged.push_back(submission.jobs[0].id);
    after += fs::exists(directory_ / "full") ? 1 : 0;
  }
  ASSERT_EQ(after, 5) << "the disk did not fill up";
  std::ifstream status(directory_ / "full");
  std::string code;
  status >> code;
  EXPECT_NE(code, "0") << "Redis ended of its own accord, and not because of an error";
  EXPECT_GE(acknowledged.size(), 50U);
  for (const std::string& id : acknowledged) {
    const auto job = jobs.get("t", id);
    ASSERT_TRUE(job.ok()) << id << ": " << job.status().to_string();
    EXPECT_EQ(job->spec.size(), 8000U) << id;
  }
  const auto now = call({"TIME"}).num(0) * 1000;
  const auto wrong = support::broken_invariants(
      [&](const std::vector<std::string>& args) { return call(args); }, now);
  for (const std::string& line : wrong) ADD_FAILURE() << line;
  auto last = store::Connection::connect({socket(), "", 0, "", ""}, std::chrono::seconds(2));
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  (void)(*last)->call({"SHUTDOWN", "NOSAVE"});  // which never answers
  EXPECT_TRUE(redis_->wait(support::kPatience_ms).has_value());
}

}  // namespace
}  // namespace dex::model
