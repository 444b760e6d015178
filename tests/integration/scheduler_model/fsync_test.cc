// The system calls of Redis while it answers submits: what it was told is on the disk before it
// says so (P1). A kill -9 cannot show this, for it leaves the page cache.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "scheduler/store/job_repository.h"
#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/redis_server.h"
#include "tests/support/temporary_directory.h"

namespace dex::model {
namespace {

constexpr int kSubmits = 20;

class FsyncTest : public testing::Test {
 protected:
  struct Seen {
    int syncs = 0;
    int early = 0;  // written to somebody while the log was not on the disk
  };

  // Redis under strace while it takes kSubmits submits.
  std::vector<std::string> trace() {
    const std::filesystem::path file = directory_ / ("trace" + std::to_string(++traces_));
    base::Subprocess::Options options;
    options.program = "strace";
    options.args = {"-f",
                    "-o",
                    file.string(),
                    "-e",
                    "trace=write,writev,sendto,fdatasync,fsync",
                    "-p",
                    std::to_string(server_.pid())};
    options.stderr_file = directory_ / "strace.txt";
    auto strace = base::Subprocess::start(options);
    EXPECT_TRUE(strace.ok()) << strace.status().to_string();
    if (!strace.ok()) return {};
    EXPECT_TRUE(support::eventually([&] { return tracer() != 0 || (*strace)->wait(0); }));
    EXPECT_NE(tracer(), 0) << "strace could not attach";
    submit_some();
    (*strace)->signal(SIGINT);  // lets Redis go
    EXPECT_TRUE((*strace)->wait(support::kPatience_ms).has_value());
    std::ifstream text(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  int tracer() {
    std::ifstream status("/proc/" + std::to_string(server_.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("TracerPid:")) return std::stoi(line.substr(10));
    }
    return 0;
  }

  void submit_some() {
    store::Store::Options options;
    options.redis.address = server_.address();
    store::Store store(options);
    EXPECT_TRUE(store.set_tenant("t", 1, 1000, 10, 0).ok());
    store::JobRepository jobs(store);
    for (int i = 0; i < kSubmits; ++i) {
      store::JobRepository::Submission submission;
      submission.request.id = submission.request.digest = "r" + std::to_string(++made_);
      submission.jobs.resize(1);
      submission.jobs[0].id = "ftjob-s" + std::to_string(made_);
      EXPECT_TRUE(jobs.submit("t", submission).ok());
    }
  }

  // The append-only file, as a descriptor of Redis.
  int log_descriptor() {
    const std::string folder = "/proc/" + std::to_string(server_.pid()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.ends_with(".incr.aof")) return std::stoi(entry.path().filename().string());
    }
    return -1;
  }

  static Seen read_trace(const std::vector<std::string>& lines, int log) {
    static const std::regex kCall(R"(^(\d+) +(write|writev|sendto|fdatasync|fsync)\((\d+).*)");
    Seen seen;
    bool dirty = false;
    std::string writer;  // the thread that answers; others only sync
    for (const std::string& line : lines) {
      std::smatch call;
      if (!std::regex_match(line, call, kCall)) continue;
      const bool on_log = std::stoi(call[3]) == log;
      const bool sync = call[2] == "fdatasync" || call[2] == "fsync";
      if (on_log && sync) {
        dirty = false;
        ++seen.syncs;
      } else if (on_log) {
        dirty = true;
        writer = call[1];
      } else if (dirty && !sync && call[1] == writer) {
        ++seen.early;
      }
    }
    return seen;
  }

  support::RedisServer server_;
  support::TemporaryDirectory directory_;
  int traces_ = 0, made_ = 0;
};

TEST_F(FsyncTest, TheLogIsOnTheDiskBeforeAnyAnswer) {
  const int log = log_descriptor();
  ASSERT_GE(log, 0);
  const Seen seen = read_trace(trace(), log);
  EXPECT_GE(seen.syncs, kSubmits);
  EXPECT_EQ(seen.early, 0);
}

// So the test before sees what it says: with everysec Redis answers first, but where its sync of
// the second falls between.
TEST_F(FsyncTest, WithEverysecAnswersComeBeforeTheDisk) {
  server_.call({"CONFIG", "SET", "appendfsync", "everysec"});
  const int log = log_descriptor();
  ASSERT_GE(log, 0);
  const Seen seen = read_trace(trace(), log);
  EXPECT_GT(seen.early, 0);
}

}  // namespace
}  // namespace dex::model
