#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/base/subprocess.h"
#include "tests/support/content_of.h"
#include "tests/support/eventually.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::standalone {

namespace fs = std::filesystem;
using support::content_of;
using support::eventually;

inline constexpr int64_t kPatience_ms = 60'000;

// A dexd with a real Redis and stand-ins for the other programs, in a folder of its own.
class DexdTest : public testing::Test {
 protected:
  DexdTest() {
    fs::create_directory(directory_ / "bin");
    fs::copy_file(support::build_dir() / "bin/dexd", directory_ / "bin/dexd");
    for (const char* name :
         {"dex-scheduler", "dex-gateway", "dex-worker", "dex-trainer", "dex-engine"}) {
      fs::copy_file(support::build_dir() / "tests/dex-fake-process", directory_ / "bin" / name);
    }
    std::ofstream(directory_ / "models.json") << "{}";
  }

  base::Subprocess::Options command(const std::vector<std::string>& more = {}) {
    base::Subprocess::Options options;
    options.program = (directory_ / "bin/dexd").string();
    options.args = {"--data-dir",  data_.string(),
                    "--grpc-port", "0",
                    "--http-port", "0",
                    "--models",    (directory_ / "models.json").string()};
    options.args.insert(options.args.end(), more.begin(), more.end());
    options.stdout_file = directory_ / "out";
    options.stderr_file = directory_ / "out";
    return options;
  }
  std::unique_ptr<base::Subprocess> start() { return start(command()); }
  std::unique_ptr<base::Subprocess> start(const base::Subprocess::Options& options) {
    auto dexd = std::move(base::Subprocess::start(options)).value();
    EXPECT_TRUE(eventually([&] { return fs::exists(data_ / "endpoints.json") || dexd->wait(0); }));
    EXPECT_TRUE(fs::exists(data_ / "endpoints.json")) << output();
    return dexd;
  }
  // Runs to its end and returns the exit code.
  int run(base::Subprocess::Options options) {
    auto dexd = std::move(base::Subprocess::start(options)).value();
    const auto exit = dexd->wait(kPatience_ms);
    return exit ? exit->code : -1;
  }
  std::string output() { return content_of(directory_ / "out"); }
  nlohmann::json endpoints() { return nlohmann::json::parse(content_of(data_ / "endpoints.json")); }
  std::string journal() { return content_of(data_ / "run/journal.txt"); }

  // Living processes whose command line names this test's folder and `word`.
  std::vector<pid_t> processes(const std::string& word) {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string id = entry.path().filename().string();
      if (id.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = content_of(entry.path() / "cmdline");
      // Redis writes its own command line: "redis-server unixsocket:/…/redis.sock".
      if (line.find(directory_.path().string()) == std::string::npos) continue;
      if (line.find(word) != std::string::npos) found.push_back(std::stoi(id));
    }
    return found;
  }
  pid_t only(const std::string& word) {
    const auto found = processes(word);
    EXPECT_EQ(found.size(), 1u) << word;
    return found.empty() ? -1 : found[0];
  }

  // The worker's arguments, each with a NUL behind it.
  std::string worker_line() {
    return content_of(fs::path("/proc") / std::to_string(only("dex-worker")) / "cmdline");
  }

  support::TemporaryDirectory directory_;
  fs::path data_ = directory_ / "data";
};

}  // namespace dex::standalone
