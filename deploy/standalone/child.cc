#include "deploy/standalone/child.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>

namespace dex::standalone {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kLargestLog_bytes = 16 << 20;

// One old log is kept.
void rotate(const fs::path& log) {
  std::error_code error;
  if (fs::file_size(log, error) <= kLargestLog_bytes || error) return;
  fs::path old = log;
  old += ".1";
  fs::rename(log, old, error);
}

}  // namespace

Child::Child(Options options, const base::Clock& clock)
    : options_(std::move(options)), clock_(clock), backoff_ms_(options_.first_backoff_ms) {}

base::Status Child::start() {
  rotate(options_.log_file);
  base::Subprocess::Options process;
  process.program = options_.launcher;
  process.args = {"--as-child", std::to_string(getpid()), options_.program};
  const auto own = options_.args();
  process.args.insert(process.args.end(), own.begin(), own.end());
  process.stdout_file = options_.log_file;
  process.stderr_file = options_.log_file;
  process.inherit = options_.inherit;
  DEX_ASSIGN_OR_RETURN(process_, base::Subprocess::start(process));
  started_ms_ = clock_.steady_ms();
  return {};
}

std::optional<base::ExitStatus> Child::ended() {
  if (!process_) return std::nullopt;
  const auto exit = process_->wait(0);
  if (!exit) return std::nullopt;
  process_.reset();
  if (clock_.steady_ms() - started_ms_ > options_.healthy_ms) {
    backoff_ms_ = options_.first_backoff_ms;
  }
  due_ms_ = clock_.steady_ms() + backoff_ms_;
  spdlog::warn("{} ended with {}; next start in {} ms", name(), exit->to_string(), backoff_ms_);
  backoff_ms_ = std::min(backoff_ms_ * 2, options_.last_backoff_ms);
  return exit;
}

void Child::restart_when_due() {
  if (process_ || clock_.steady_ms() < due_ms_) return;
  const auto started = start();
  if (started.ok()) {
    spdlog::info("{} started again, process {}", name(), pid());
  } else {
    due_ms_ = clock_.steady_ms() + options_.last_backoff_ms;
    spdlog::error("{}: {}", name(), started.message());
  }
}

void Child::stop(const std::stop_token& urgent) {
  if (!process_) return;
  process_->signal(SIGTERM);
  const int64_t end = clock_.steady_ms() + options_.stop_grace_ms;
  while (!process_->wait(100)) {
    if (!urgent.stop_requested() && clock_.steady_ms() < end) continue;
    spdlog::warn("{} does not stop and is killed", name());
    break;
  }
  process_->terminate(0);
  process_.reset();
}

std::string Child::last_lines() const {
  std::ifstream log(options_.log_file, std::ios::binary);
  log.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(log.tellg());
  log.seekg(std::max<int64_t>(0, size - 1500));
  std::string text(std::istreambuf_iterator<char>(log), {});
  if (size > 1500) text.erase(0, text.find('\n') + 1);
  return text;
}

int run_as_child(int argc, char** argv) {
  pid_t parent = 0;
  if (argc < 4 ||
      std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), parent).ec != std::errc()) {
    std::fprintf(stderr, "dexd --as-child PARENT PROGRAM ARGS…\n");
    return 2;
  }
  if (!base::die_with_parent(parent)) return 0;  // it is already gone: nobody needs this child
  execv(argv[3], argv + 3);
  std::fprintf(stderr, "cannot start %s: %s\n", argv[3], std::strerror(errno));
  return 127;
}

}  // namespace dex::standalone
