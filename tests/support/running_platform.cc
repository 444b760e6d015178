#include "tests/support/running_platform.h"

#include <signal.h>

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace dex::support {

namespace fs = std::filesystem;

namespace {

fs::path program(const std::string& name) {
  return support::build_dir() / "bin" / name;
}

}  // namespace

nlohmann::json Outcome::json() const {
  std::istringstream lines(out);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  const auto parsed = nlohmann::json::parse(last, nullptr, false);
  if (parsed.is_discarded()) {
    throw std::runtime_error("no JSON on stdout (exit code " + std::to_string(code) + "): " + out +
                             "\n" + err);
  }
  return parsed;
}

Outcome run_program(const std::string& name, const std::vector<std::string>& args, int64_t limit_ms,
                    const std::vector<std::pair<std::string, std::string>>& environment) {
  const TemporaryDirectory directory;
  base::Subprocess::Options options;
  options.program = program(name);
  options.args = args;
  options.environment = environment;
  options.stdout_file = directory / "out";
  options.stderr_file = directory / "err";
  auto process = base::Subprocess::start(options);
  if (!process.ok()) throw std::runtime_error(process.status().to_string());
  const auto status = (*process)->wait(limit_ms);
  if (!status) (*process)->terminate(0);
  Outcome outcome;
  outcome.code = status ? (status->signal ? 128 + status->signal : status->code) : -1;
  outcome.out = content_of(directory / "out");
  outcome.err = content_of(directory / "err");
  return outcome;
}

RunningPlatform::RunningPlatform(fs::path data_dir, fs::path models_file,
                                 std::vector<std::pair<std::string, std::string>> environment)
    : data_dir_(std::move(data_dir)),
      models_file_(models_file.empty() ? support::deps_dir() / "models" / "models.json"
                                       : std::move(models_file)),
      environment_(std::move(environment)) {}

RunningPlatform::~RunningPlatform() {
  if (dexd_) dexd_->terminate(60'000);
}

void RunningPlatform::start(const std::vector<std::string>& more) {
  const fs::path file = data_dir_ / "endpoints.json";
  std::error_code ignored;
  fs::remove(file, ignored);
  base::Subprocess::Options options;
  options.program = program("dexd");
  options.args = {"--data-dir",  data_dir_, "--grpc-port", "0",
                  "--http-port", "0",       "--models",    models_file_};
  options.args.insert(options.args.end(), more.begin(), more.end());
  options.environment = environment_;
  options.stdout_file = data_dir_.string() + ".log";
  options.stderr_file = options.stdout_file;
  auto started = base::Subprocess::start(options);
  if (!started.ok()) throw std::runtime_error(started.status().to_string());
  dexd_ = std::move(started).value();
  const bool came =
      eventually([&] { return fs::exists(file) || dexd_->wait(0).has_value(); }, 180'000);
  if (!came || !fs::exists(file)) throw std::runtime_error("dexd did not come up:\n" + log());
  endpoints_ = nlohmann::json::parse(content_of(file));
}

int RunningPlatform::stop() {
  ask_to_stop();
  return wait(120'000);
}

int RunningPlatform::wait(int64_t limit_ms) {
  const auto status = dexd_->wait(limit_ms);
  const int code = status ? (status->signal ? 128 + status->signal : status->code) : -1;
  if (!status) dexd_->terminate(0);
  dexd_.reset();
  return code;
}

std::string RunningPlatform::log() const {
  return content_of(data_dir_.string() + ".log");
}

Outcome RunningPlatform::ctl(std::vector<std::string> args, int64_t limit_ms) const {
  args.insert(args.end(), {"--output", "json"});
  return plain_ctl(args, limit_ms);
}

Outcome RunningPlatform::plain_ctl(const std::vector<std::string>& args, int64_t limit_ms) const {
  return run_program("dexctl", args, limit_ms, {{"DEX_SERVER", server()}});
}

std::vector<pid_t> RunningPlatform::processes(const std::string& name) const {
  const auto all = all_processes();
  std::set<pid_t> family = {dexd_->pid()};
  // Parents are older than their children but for those begun in the same tick: a few rounds.
  for (int round = 0; round < 4; ++round) {
    for (const auto& process : all) {
      if (family.contains(process.parent)) family.insert(process.pid);
    }
  }
  std::vector<pid_t> pids;
  for (const auto& process : all) {
    if (process.name == name && family.contains(process.pid)) pids.push_back(process.pid);
  }
  return pids;
}

std::string RunningPlatform::upload_rows(const std::string& name, const std::string& side,
                                         int rows) const {
  const fs::path source = support::deps_dir() / "data" / (name + "." + side + ".jsonl");
  std::ifstream in(source);
  if (!in) throw std::runtime_error(source.string() + " is missing: run deploy/setup/all");
  const TemporaryDirectory directory;
  const fs::path part = directory / (name + "." + side + ".jsonl");
  {
    std::ofstream out(part);
    std::string line;
    for (int i = 0; i < rows && std::getline(in, line); ++i) out << line << "\n";
  }
  return ctl({"files", "upload", part}).json().at("id");
}

}  // namespace dex::support
