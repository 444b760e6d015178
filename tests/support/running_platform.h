#pragma once

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace dex::support {

// What a program wrote and how it ended.
struct Outcome {
  int code = -1;
  std::string out, err;
  // The last line of stdout as JSON; throws with both outputs when it is none.
  [[nodiscard]] nlohmann::json json() const;
};

// Runs a program of build/bin to its end; after `limit_ms` it is killed and the code is -1.
Outcome run_program(const std::string& name, const std::vector<std::string>& args,
                    int64_t limit_ms = 120'000,
                    const std::vector<std::pair<std::string, std::string>>& environment = {});

// The real platform: dexd with its own data directory on free ports. start() throws with dexd's
// output when it does not come up; the destructor stops it and kills what is left of its group.
class RunningPlatform {
 public:
  // `models_file`: the allow-list of base models; empty takes the real one,
  // `.deps/models/models.json`. `environment` is added to dexd's own, which its processes share.
  explicit RunningPlatform(std::filesystem::path data_dir, std::filesystem::path models_file = {},
                           std::vector<std::pair<std::string, std::string>> environment = {});
  ~RunningPlatform();

  void start(const std::vector<std::string>& more = {});  // `more` flags of dexd
  // SIGTERM, and the exit code that dexd ended with.
  int stop();
  // The two halves of it; −1 when dexd had to be killed after `limit_ms`.
  void ask_to_stop() { dexd_->signal(SIGTERM); }
  int wait(int64_t limit_ms);

  // dexctl with --output json against this platform.
  Outcome ctl(std::vector<std::string> args, int64_t limit_ms = 600'000) const;
  // dexctl as people use it: tables, streams.
  Outcome plain_ctl(const std::vector<std::string>& args, int64_t limit_ms = 600'000) const;
  // The addresses in endpoints.json.
  [[nodiscard]] const nlohmann::json& endpoints() const { return endpoints_; }
  [[nodiscard]] std::string server() const { return endpoints_.at("grpc"); }
  [[nodiscard]] pid_t pid() const { return dexd_->pid(); }
  [[nodiscard]] const std::filesystem::path& data_dir() const { return data_dir_; }
  [[nodiscard]] std::string log() const;  // dexd's own output

  // Processes below dexd whose program has this name ("dex-trainer"), youngest last.
  [[nodiscard]] std::vector<pid_t> processes(const std::string& name) const;

  // Uploads `rows` lines of the data set `.deps/data/<name>.<side>.jsonl`; the file's id.
  std::string upload_rows(const std::string& name, const std::string& side, int rows) const;

 private:
  const std::filesystem::path data_dir_, models_file_;
  const std::vector<std::pair<std::string, std::string>> environment_;
  std::unique_ptr<base::Subprocess> dexd_;
  nlohmann::json endpoints_;
};

}  // namespace dex::support
