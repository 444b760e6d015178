#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/base/subprocess.h"
#include "tests/support/content_of.h"
#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

// dex-gateway as a process.
namespace dex::gateway {
namespace {

using support::content_of;
using ::testing::HasSubstr;

class ProgramTest : public ::testing::Test {
 protected:
  std::unique_ptr<base::Subprocess> start(std::vector<std::string> args) {
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-gateway").string();
    options.args = std::move(args);
    options.stderr_file = errors_;
    auto started = base::Subprocess::start(options);
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    return std::move(started).value();
  }

  const support::TemporaryDirectory directory_;
  const std::filesystem::path errors_ = directory_ / "stderr";
  const std::filesystem::path endpoints_ = directory_ / "endpoints.json";
};

TEST_F(ProgramTest, WritesItsAddressesAndStopsOnSigterm) {
  const auto process =
      start({"--scheduler", "unix:/nowhere/dex", "--listen", "127.0.0.1:0", "--http-listen",
             "127.0.0.1:0", "--endpoints-file", endpoints_.string()});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(endpoints_) && std::chrono::steady_clock::now() < end) {
    ASSERT_FALSE(process->wait(10)) << content_of(errors_);
  }
  const auto endpoints = nlohmann::json::parse(content_of(endpoints_));
  for (const char* key : {"grpc", "http", "metrics"}) {
    EXPECT_GT(support::port_of(endpoints.at(key).get<std::string>()), 0);
  }
  const int port = support::port_of(endpoints.at("http").get<std::string>());
  EXPECT_THAT(support::http_get(port, "/healthz"), HasSubstr("200 OK"));
  process->signal(SIGTERM);
  const auto exit = process->wait(20'000);
  ASSERT_TRUE(exit.has_value());
  EXPECT_TRUE(exit->success()) << exit->to_string() << content_of(errors_);
}

TEST_F(ProgramTest, ElsewhereThanOnLoopbackCallersAreAskedForAKey) {
  const auto process =
      start({"--scheduler", "unix:/nowhere/dex", "--listen", "127.0.0.1:0", "--http-listen",
             "0.0.0.0:0", "--endpoints-file", endpoints_.string()});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(endpoints_) && std::chrono::steady_clock::now() < end) {
    ASSERT_FALSE(process->wait(10)) << content_of(errors_);
  }
  const auto endpoints = nlohmann::json::parse(content_of(endpoints_));
  const int port = support::port_of(endpoints.at("http").get<std::string>());
  EXPECT_THAT(support::http_get(port, "/v1/files"), HasSubstr("HTTP/1.1 401"));
  EXPECT_THAT(content_of(errors_), HasSubstr("without encryption"));
  process->signal(SIGTERM);
  EXPECT_TRUE(process->wait(20'000).has_value());
}

TEST_F(ProgramTest, WithoutKeysRefusesAddressesThatOthersCanReach) {
  const auto process =
      start({"--scheduler", "127.0.0.1:1", "--listen", "0.0.0.0:50051", "--auth", "off"});
  const auto exit = process->wait(20'000);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 1);
  EXPECT_THAT(content_of(errors_), HasSubstr("0.0.0.0:50051"));
  EXPECT_THAT(content_of(errors_), HasSubstr("loopback"));
}

}  // namespace
}  // namespace dex::gateway
