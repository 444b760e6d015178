// dexd with a real Redis and stand-ins for the other programs: who is started, watched, stopped.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "deploy/standalone/http_probe.h"
#include "services/base/process_lock.h"
#include "tests/unit/deploy/standalone/dexd_fixture.h"

namespace dex::standalone {
namespace {

using testing::HasSubstr;

TEST_F(DexdTest, StartsInOrderPublishesAndStopsInReverse) {
  auto dexd = start();
  const auto published = endpoints();
  for (const char* key : {"grpc", "http", "scheduler"}) {
    EXPECT_THAT(published.at(key).get<std::string>(), HasSubstr("127.0.0.1:"));
  }
  for (const char* name : {"scheduler", "gateway", "worker"}) {
    EXPECT_TRUE(http_ok(published.at("metrics").at(name), "/readyz", 5'000).ok()) << name;
  }
  EXPECT_EQ(published.at("pid"), dexd->pid());
  EXPECT_THAT(output(), HasSubstr("dexd is ready"));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  EXPECT_EQ(journal(),
            "start dex-scheduler\nstart dex-gateway\nstart dex-worker\n"
            "stop dex-worker\nstop dex-gateway\nstop dex-scheduler\n");
  EXPECT_TRUE(processes("").empty());
  EXPECT_FALSE(fs::exists(data_ / "endpoints.json")) << "nobody is there any more";
}

TEST_F(DexdTest, CtrlCStopsEverythingInOrder) {
  auto dexd = start();
  dexd->signal(SIGINT);
  const auto exit = dexd->wait(kPatience_ms);
  ASSERT_TRUE(exit);
  EXPECT_TRUE(exit->success()) << exit->to_string();
  EXPECT_THAT(journal(),
              testing::EndsWith("stop dex-worker\nstop dex-gateway\nstop dex-scheduler\n"));
  EXPECT_TRUE(processes("").empty());
}

TEST_F(DexdTest, SecretsAndFoldersAreForTheOwnerOnly) {
  auto dexd = start();
  const auto mode = [](const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode(data_), 0700u);
  EXPECT_EQ(mode(data_ / "redis/password"), 0600u);
  EXPECT_EQ(mode(data_ / "redis/redis.conf"), 0600u);
  EXPECT_EQ(mode(data_ / "redis/redis.sock"), 0700u);
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

TEST_F(DexdTest, KillNineLeavesNothingRunningAndTheFolderUsable) {
  auto dexd = start();
  kill(dexd->pid(), SIGKILL);
  EXPECT_TRUE(eventually([this] { return processes("").empty(); }));
  dexd.reset();
  auto again = start();
  EXPECT_EQ(again->terminate(kPatience_ms).code, 0);
}

TEST_F(DexdTest, ASecondOneOnTheSameFolderIsRefused) {
  auto dexd = start();
  EXPECT_EQ(run(command()), 1);
  EXPECT_THAT(output(), HasSubstr("another dexd uses this data directory"));
  EXPECT_THAT(output(), HasSubstr(std::to_string(dexd->pid())));
  EXPECT_TRUE(fs::exists(data_ / "endpoints.json")) << "the first one is not disturbed";
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

TEST_F(DexdTest, ADeadProcessIsStartedAgainAtItsAddress) {
  auto dexd = start();
  const auto before = endpoints();
  kill(only("dex-scheduler"), SIGKILL);
  EXPECT_TRUE(eventually([this] {
    return journal().find("start dex-worker\nstart dex-scheduler\n") != std::string::npos;
  }));
  EXPECT_TRUE(eventually([&] {
    return http_ok(before.at("metrics").at("scheduler"), "/readyz", 1'000).ok();
  })) << "the others know it by this address";
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  EXPECT_THAT(output(), HasSubstr("scheduler ended with signal 9"));
}

TEST_F(DexdTest, RedisComesBack) {
  auto dexd = start();
  const pid_t first = only("redis-server");
  kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const auto now = processes("redis-server");
    return now.size() == 1 && now[0] != first;
  }));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  EXPECT_TRUE(processes("").empty());
}

// Redis would keep its beginning, and apply that at the start after the next one.
TEST_F(DexdTest, AScriptThatAKillCutOffIsGoneBeforeRedisStarts) {
  EXPECT_EQ(start()->terminate(kPatience_ms).code, 0);
  const fs::path log = data_ / "redis/appendonlydir/appendonly.aof.1.incr.aof";
  const std::string before = content_of(log);
  std::ofstream(log, std::ios::binary | std::ios::app)
      << "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$3\r\nSE";
  EXPECT_EQ(start()->terminate(kPatience_ms).code, 0);
  EXPECT_EQ(content_of(log), before);
  EXPECT_THAT(output(), HasSubstr("of a script that was never answered are cut off its log"));
}

// The worker's flag would win over what the scheduler has from the environment and tells it.
TEST_F(DexdTest, TheEnvironmentsBeatIsTheSchedulersToTell) {
  auto options = command();
  options.environment = {{"DEX_BEAT_MS", ""}};
  auto dexd = start(options);
  EXPECT_THAT(worker_line(), HasSubstr(std::string("--beat-ms") + '\0' + "5000"));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  options.environment = {{"DEX_BEAT_MS", "700"}};
  dexd = start(options);
  EXPECT_THAT(worker_line(), testing::Not(HasSubstr("--beat-ms")));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

// On one machine nobody else could take a job over, so its training outlives any outage (jobs.md
// §4).
TEST_F(DexdTest, ItsWorkerHasNoOrphanLimit) {
  auto dexd = start();
  EXPECT_THAT(worker_line(), HasSubstr(std::string("--orphan-limit-ms") + '\0' + "0" + '\0'));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

TEST_F(DexdTest, AProcessThatDoesNotStartIsNamedWithItsLastLines) {
  auto options = command();
  options.environment = {{"DEX_FAKE_FAILS", "dex-gateway"}};
  EXPECT_EQ(run(options), 1);
  EXPECT_THAT(output(), HasSubstr("gateway did not start (exit code 3)"));
  EXPECT_THAT(output(), HasSubstr("dex-gateway finds that all is lost"));
  EXPECT_TRUE(processes("").empty());
}

TEST_F(DexdTest, WhatIsMissingIsNamedWithItsRemedy) {
  auto no_redis = command();
  no_redis.environment = {{"PATH", "/nowhere"}};
  EXPECT_EQ(run(no_redis), 1);
  EXPECT_THAT(output(), HasSubstr("apt-get install redis-server"));
  EXPECT_EQ(run(command({"--models", "/nowhere/models.json"})), 1);
  EXPECT_THAT(output(), HasSubstr("/nowhere/models.json is missing; deploy/setup/all"));
  fs::remove(directory_ / "bin/dex-engine");
  EXPECT_EQ(run(command()), 1);
  EXPECT_THAT(output(), HasSubstr("bin/dex-engine is missing"));
}

TEST_F(DexdTest, WrongArgumentsAreExplained) {
  EXPECT_EQ(run(command({"--grpc-port", "70000"})), 2);
  EXPECT_THAT(output(), HasSubstr("--grpc-port wants a number in its range, got '70000'"));
  EXPECT_EQ(run(command({"--colour=red"})), 2);
  EXPECT_THAT(output(), HasSubstr("unknown option --colour"));
  EXPECT_EQ(run(command({"--help"})), 0);
  EXPECT_THAT(output(), HasSubstr("--data-dir DIR"));
}

TEST_F(DexdTest, WithoutAFolderItTakesTheOneThatDexctlLooksInto) {
  auto options = command();
  options.args.erase(options.args.begin(), options.args.begin() + 2);  // --data-dir
  options.environment = {{"DEX_DATA_DIR", data_.string()}};
  auto dexd = std::move(base::Subprocess::start(options)).value();
  EXPECT_TRUE(eventually([&] { return fs::exists(data_ / "endpoints.json") || dexd->wait(0); }));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0) << output();

  options.environment = {{"DEX_DATA_DIR", ""}, {"HOME", ""}};
  EXPECT_EQ(run(options), 2);
  EXPECT_THAT(output(), HasSubstr("neither DEX_DATA_DIR nor HOME is set"));
}

TEST_F(DexdTest, ADeepFolderStillHasASocket) {
  data_ = directory_ / std::string(100, 'd') / std::string(60, 'e');
  auto dexd = start();
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

}  // namespace
}  // namespace dex::standalone
