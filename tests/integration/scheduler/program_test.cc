// dex-scheduler as a process: flags, endpoints file, password, SIGTERM.
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/base/subprocess.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/paths.h"

namespace dex::server {
namespace {

class ProgramTest : public SchedulerTest {
 protected:
  std::unique_ptr<base::Subprocess> run(std::vector<std::string> more = {}) {
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-scheduler").string();
    options.args = {"--redis",          "unix:" + redis_.socket(),
                    "--data-dir",       (directory_ / "data").string(),
                    "--models",         (directory_ / "models/models.json").string(),
                    "--endpoints-file", (directory_ / "run/scheduler.json").string()};
    options.args.insert(options.args.end(), more.begin(), more.end());
    options.stderr_file = directory_ / "log";
    auto process = base::Subprocess::start(options);
    EXPECT_TRUE(process.ok()) << process.status().to_string();
    return std::move(process).value();
  }
  std::string log() {
    std::ifstream file(directory_ / "log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ProgramTest, WritesItsAddressesAndStopsOnSigterm) {
  const auto process = run();
  const auto file = directory_ / "run/scheduler.json";
  while (!std::filesystem::exists(file) && !process->wait(10)) {
  }
  ASSERT_TRUE(std::filesystem::exists(file)) << log();
  const auto endpoints = nlohmann::json::parse(std::ifstream(file));
  const auto models =
      v1::ModelService::NewStub(rpc::channel(endpoints.at("grpc").get<std::string>()));
  EXPECT_EQ(
      call(*models, &v1::ModelService::Stub::ListModels, v1::ListModelsRequest{})->models_size(),
      1);
  EXPECT_TRUE(endpoints.contains("worker"));
  EXPECT_TRUE(endpoints.contains("metrics"));
  process->signal(SIGTERM);
  const auto exit = process->wait(15000);
  ASSERT_TRUE(exit.has_value()) << log();
  EXPECT_TRUE(exit->success()) << exit->to_string() << log();
}

TEST_F(ProgramTest, BadFlagsEndInOneClearSentence) {
  const auto public_address = run({"--listen", "0.0.0.0:0"});
  EXPECT_EQ(public_address->wait(15000)->code, 1);
  EXPECT_NE(log().find("--listen"), std::string::npos) << log();
}

TEST_F(ProgramTest, WrongPasswordIsRefusedAtTheStart) {
  std::ofstream(directory_ / "password") << "guess\n";
  redis_.call({"CONFIG", "SET", "requirepass", "secret"});
  const auto process = run({"--redis-password-file", (directory_ / "password").string()});
  EXPECT_EQ(process->wait(15000)->code, 1);
  EXPECT_NE(log().find("refused the login"), std::string::npos) << log();
  EXPECT_EQ(log().find("guess"), std::string::npos);
}

TEST_F(ProgramTest, ARedisThatForgetsIsRefusedAtTheStart) {
  redis_.call({"CONFIG", "SET", "appendfsync", "everysec"});
  redis_.call({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  const auto process = run();
  EXPECT_EQ(process->wait(15000)->code, 1);
  EXPECT_NE(log().find("appendfsync is 'everysec', must be 'always'"), std::string::npos) << log();
  EXPECT_NE(log().find("maxmemory-policy is 'allkeys-lru'"), std::string::npos) << log();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run/scheduler.json"));
}

TEST_F(ProgramTest, DataOfANewerSchedulerIsRefusedAtTheStart) {
  redis_.call({"HSET", "dex:{s0}:cfg", "schema", "2"});
  const auto process = run();
  EXPECT_EQ(process->wait(15000)->code, 1);
  EXPECT_NE(log().find("start a newer scheduler"), std::string::npos) << log();
}

}  // namespace
}  // namespace dex::server
