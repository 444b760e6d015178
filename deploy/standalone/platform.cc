#include "deploy/standalone/platform.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <ranges>

#include "deploy/standalone/admin_key.h"
#include "deploy/standalone/http_probe.h"
#include "deploy/standalone/listening_port.h"
#include "deploy/standalone/monitoring.h"
#include "services/base/files.h"
#include "services/base/process_lock.h"

namespace dex::standalone {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kLook_ms = 100;
constexpr int64_t kLowDisk_bytes = 64 << 20;
constexpr const char* kAnyPort = "127.0.0.1:0";

// Where programs of this machine reach a door that listens everywhere.
std::string dialable(const std::string& address) {
  for (const std::string everywhere : {"0.0.0.0:", "[::]:"}) {
    if (address.starts_with(everywhere)) return "127.0.0.1:" + address.substr(everywhere.size());
  }
  return address;
}
}  // namespace

Platform::Platform(PlatformOptions options, const base::StopSignals& signals,
                   const base::Clock& clock, base::RandomSource& random)
    : options_(std::move(options)), signals_(signals), clock_(clock), random_(random) {}

base::Status Platform::run() {
  DEX_RETURN_IF_ERROR(lock());
  auto status = start_all();
  if (status.ok()) watch();
  stop_all();
  // A start that was broken off by Ctrl-C is no failure.
  return signals_.token().stop_requested() ? base::Status() : status;
}

base::Status Platform::lock() {
  DEX_RETURN_IF_ERROR(base::make_directories(options_.data_dir));
  DEX_RETURN_IF_ERROR(base::make_directories(options_.data_dir / "logs"));
  DEX_RETURN_IF_ERROR(base::make_directories(options_.data_dir / "run"));
  auto lock = base::lock_file(options_.data_dir / "dexd.lock");
  if (!lock.ok() && lock.status().reason() == "LOCKED") {
    return base::unavailable("LOCKED", "another dexd uses this data directory (" +
                                           lock.status().message() +
                                           "); stop it, or choose another --data-dir");
  }
  DEX_ASSIGN_OR_RETURN(lock_, std::move(lock));
  return {};
}

base::Status Platform::start_all() {
  std::error_code ignored;
  fs::remove(options_.data_dir / "endpoints.json", ignored);  // of an earlier run
  DEX_RETURN_IF_ERROR(check_programs());
  if (options_.authenticate) {
    DEX_ASSIGN_OR_RETURN(admin_key_, prepare_admin_key(options_.data_dir, random_));
  }
  DEX_RETURN_IF_ERROR(start_redis());
  DEX_RETURN_IF_ERROR(start_process(
      "scheduler", [this] { return scheduler_args(); }, 15'000));
  DEX_RETURN_IF_ERROR(start_process(
      "gateway", [this] { return gateway_args(); }, 15'000));
  DEX_RETURN_IF_ERROR(start_process(
      "worker", [this] { return worker_args(); }, options_.stop_grace_ms + 60'000));
  DEX_RETURN_IF_ERROR(write_monitoring());
  if (options_.with_prometheus) DEX_RETURN_IF_ERROR(start_prometheus());
  return publish();
}

base::Status Platform::check_programs() const {
  for (const char* name :
       {"dex-scheduler", "dex-gateway", "dex-worker", "dex-trainer", "dex-engine"}) {
    const auto path = options_.program_dir / name;
    if (access(path.c_str(), X_OK) == 0) continue;
    return base::failed_precondition("PROGRAM_MISSING",
                                     path.string() +
                                         " is missing; build it with deploy/check or "
                                         "deploy/quickstart");
  }
  if (options_.with_prometheus && options_.prometheus_program.empty()) {
    return base::failed_precondition("PROMETHEUS_MISSING",
                                     "prometheus is not installed; install it with: apt-get "
                                     "install prometheus, or start without "
                                     "--with-prometheus");
  }
  if (access(options_.models_file.c_str(), R_OK) == 0) return {};
  return base::failed_precondition(
      "MODELS_MISSING", options_.models_file.string() +
                            " is missing; deploy/setup/all makes one, or give --models FILE");
}

base::Status Platform::start_redis() {
  DEX_ASSIGN_OR_RETURN(redis_, prepare_redis(options_.redis_program, options_.data_dir, random_));
  Child::Options redis;
  redis.name = "redis";
  redis.launcher = options_.launcher;
  redis.program = redis_.program;
  redis.args = [this] {
    mend_redis_log(redis_);
    return std::vector<std::string>{redis_.config_file.string()};
  };
  redis.log_file = options_.data_dir / "logs" / "redis.log";
  // It holds the lock too: after a kill -9 of dexd nobody opens its files before it is gone.
  redis.inherit = {lock_.get()};
  children_.push_back(std::make_unique<Child>(std::move(redis), clock_));
  auto& child = *children_.back();
  DEX_RETURN_IF_ERROR(child.start());
  return wait_until(child, [this] { return ping_redis(redis_); });
}

base::Status Platform::write_monitoring() const {
  std::map<std::string, std::string> metrics;
  for (const auto& [name, addresses] : addresses_) metrics[name] = addresses.at("metrics");
  return standalone::write_monitoring(options_.data_dir, metrics);
}

base::Status Platform::start_prometheus() {
  Child::Options prometheus;
  prometheus.name = "prometheus";
  prometheus.launcher = options_.launcher;
  prometheus.program = options_.prometheus_program;
  prometheus.args = [this] {
    const std::string first = "127.0.0.1:" + std::to_string(options_.prometheus_port);
    return prometheus_args(options_.data_dir, prometheus_.empty() ? first : prometheus_);
  };
  prometheus.log_file = options_.data_dir / "logs" / "prometheus.log";
  children_.push_back(std::make_unique<Child>(std::move(prometheus), clock_));
  auto& child = *children_.back();
  DEX_RETURN_IF_ERROR(child.start());
  return wait_until(child, [this, &child]() -> base::Status {
    DEX_ASSIGN_OR_RETURN(const uint16_t port, listening_port(child.pid()));
    const std::string address = "127.0.0.1:" + std::to_string(port);
    DEX_RETURN_IF_ERROR(http_ok(address, "/-/ready", 2'000));
    prometheus_ = address;
    return {};
  });
}

base::Status Platform::start_process(const std::string& name,
                                     std::function<std::vector<std::string>()> args,
                                     int64_t stop_grace_ms) {
  std::error_code ignored;
  fs::remove(run_file(name), ignored);
  Child::Options options;
  options.name = name;
  options.launcher = options_.launcher;
  options.program = (options_.program_dir / ("dex-" + name)).string();
  options.args = std::move(args);
  options.log_file = options_.data_dir / "logs" / (name + ".log");
  options.stop_grace_ms = stop_grace_ms;
  children_.push_back(std::make_unique<Child>(std::move(options), clock_));
  auto& child = *children_.back();
  DEX_RETURN_IF_ERROR(child.start());
  return wait_until(child, [this, &name]() -> base::Status {
    DEX_ASSIGN_OR_RETURN(auto addresses, read_addresses(name));
    DEX_RETURN_IF_ERROR(http_ok(addresses["metrics"], "/readyz", 2'000));
    addresses_[name] = std::move(addresses);
    return {};
  });
}

base::Status Platform::wait_until(Child& child, const std::function<base::Status()>& ready) {
  const int64_t end = clock_.steady_ms() + options_.start_limit_ms;
  base::Status last;
  while (clock_.steady_ms() < end) {
    if (const auto exit = child.ended()) {
      return base::unavailable("START_FAILED", child.name() + " did not start (" +
                                                   exit->to_string() + "). Its last lines:\n" +
                                                   child.last_lines());
    }
    last = ready();
    if (last.ok()) {
      spdlog::info("{} is ready, process {}", child.name(), child.pid());
      return {};
    }
    if (signals_.wait(kLook_ms)) return {base::Code::kCancelled, "STOPPED", "stopped"};
  }
  return base::unavailable("START_FAILED", child.name() + " is not ready after " +
                                               std::to_string(options_.start_limit_ms / 1000) +
                                               " s: " + last.message() + "\nIts last lines:\n" +
                                               child.last_lines());
}

base::Result<Platform::Addresses> Platform::read_addresses(const std::string& name) const {
  DEX_ASSIGN_OR_RETURN(const auto text, base::read_file(run_file(name), 64 << 10));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Addresses addresses;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (value.is_string()) addresses[key] = value.get<std::string>();
    }
  }
  if (addresses.contains("metrics")) return addresses;
  return base::internal(run_file(name).string() +
                        " names no metrics address: " + text.substr(0, 200));
}

base::Status Platform::publish() const {
  // With the process, so that a reader can tell what a kill -9 left over (client/cli).
  nlohmann::json endpoints{{"pid", getpid()},
                           {"grpc", dialable(addresses_.at("gateway").at("grpc"))},
                           {"http", dialable(addresses_.at("gateway").at("http"))},
                           {"scheduler", addresses_.at("scheduler").at("grpc")}};
  for (const auto& [name, addresses] : addresses_) {
    endpoints["metrics"][name] = addresses.at("metrics");
  }
  if (!prometheus_.empty()) endpoints["prometheus"] = prometheus_;
  const auto file = options_.data_dir / "endpoints.json";
  DEX_RETURN_IF_ERROR(base::write_file_atomically(file, endpoints.dump(2) + "\n", 0644));
  std::printf("dexd is ready: gRPC %s, HTTP http://%s, addresses in %s\n",
              endpoints["grpc"].get<std::string>().c_str(),
              endpoints["http"].get<std::string>().c_str(), file.c_str());
  if (!admin_key_.empty()) {
    std::printf(
        "Callers must show an API key. The operator's is in %s; dexctl on this machine "
        "finds it,\nand dexctl keys create makes others.\n",
        admin_key_.c_str());
  }
  std::fflush(stdout);
  return {};
}

void Platform::watch() {
  while (!signals_.wait(kLook_ms)) {
    for (const auto& child : children_) {
      if (child->ended()) explain_end(*child);
      child->restart_when_due();
    }
  }
}

// With every write synced Redis ends itself when the disk is full (jobs.md §8).
void Platform::explain_end(const Child& child) const {
  if (child.name() != "redis") return;
  const auto free = base::free_bytes(options_.data_dir);
  if (free.ok() && *free < kLowDisk_bytes) {
    spdlog::error(
        "the disk of {} is full: {} bytes free. Jobs that run go on, nothing new starts "
        "until there is room",
        options_.data_dir.string(), *free);
  } else {
    spdlog::error("Redis ended; see {}", (options_.data_dir / "logs" / "redis.log").string());
  }
}

void Platform::stop_all() {
  std::error_code ignored;
  fs::remove(options_.data_dir / "endpoints.json", ignored);
  // Last started, first stopped: the worker gives its jobs back while the scheduler still listens,
  // and Redis goes when nobody writes any more.
  for (const auto& child : std::views::reverse(children_)) {
    if (child->running()) spdlog::info("stopping {}", child->name());
    child->stop(signals_.urgent());
  }
  children_.clear();
  if (redis_.socket.parent_path() != options_.data_dir / "redis") {
    fs::remove_all(redis_.socket.parent_path(), ignored);
  }
}

fs::path Platform::run_file(const std::string& name) const {
  return options_.data_dir / "run" / (name + ".json");
}

std::string Platform::address(const std::string& name, const std::string& key,
                              const std::string& first) const {
  const auto process = addresses_.find(name);
  if (process == addresses_.end() || !process->second.contains(key)) return first;
  return process->second.at(key);
}

// Where our own processes meet. Those doors ask for no key: with keys they are sockets beside that
// of Redis, in a folder that is its owner's alone, and not ports that any account of the machine
// may dial.
std::string Platform::inner(const std::string& name) const {
  if (!options_.authenticate) return kAnyPort;
  return "unix:" + (redis_.socket.parent_path() / (name + ".sock")).string();
}

std::vector<std::string> Platform::scheduler_args() const {
  std::vector<std::string> args = {"--redis",
                                   "unix:" + redis_.socket.string(),
                                   "--redis-password-file",
                                   redis_.password_file.string(),
                                   "--data-dir",
                                   options_.data_dir.string(),
                                   "--models",
                                   options_.models_file.string(),
                                   "--listen",
                                   address("scheduler", "grpc", inner("scheduler")),
                                   "--worker-listen",
                                   address("scheduler", "worker", inner("workers")),
                                   "--metrics-listen",
                                   address("scheduler", "metrics", kAnyPort),
                                   "--endpoints-file",
                                   run_file("scheduler").string()};
  if (!admin_key_.empty()) {
    args.emplace_back("--admin-key-file");
    args.push_back(admin_key_.string());
  }
  return args;
}

std::vector<std::string> Platform::gateway_args() const {
  const auto local = [this](uint16_t port) { return options_.host + ":" + std::to_string(port); };
  std::vector<std::string> args = {
      "--scheduler",      addresses_.at("scheduler").at("grpc"),
      "--listen",         address("gateway", "grpc", local(options_.grpc_port)),
      "--http-listen",    address("gateway", "http", local(options_.http_port)),
      "--metrics-listen", address("gateway", "metrics", kAnyPort),
      "--endpoints-file", run_file("gateway").string(),
      "--auth",           options_.authenticate ? "on" : "off",
      "--audit-log",      (options_.data_dir / "audit.jsonl").string()};
  if (!options_.web_root.empty()) {
    args.emplace_back("--web-root");
    args.push_back(options_.web_root.string());
  }
  for (const auto& origin : options_.cors_origins) {
    args.emplace_back("--cors-origin");
    args.push_back(origin);
  }
  return args;
}

std::vector<std::string> Platform::worker_args() const {
  std::vector<std::string> args = {"--scheduler",      addresses_.at("scheduler").at("worker"),
                                   "--data-dir",       options_.data_dir.string(),
                                   "--models",         options_.models_file.string(),
                                   "--pools",          "cpu",
                                   "--worker-id",      "local",
                                   "--threads",        std::to_string(options_.threads),
                                   "--ranks",          std::to_string(options_.ranks),
                                   "--stop-grace-ms",  std::to_string(options_.stop_grace_ms),
                                   "--listen",         address("worker", "grpc", inner("worker")),
                                   "--metrics-listen", address("worker", "metrics", kAnyPort),
                                   "--endpoints-file", run_file("worker").string()};
  // On one machine nobody else could take its jobs meanwhile: they outlive any outage.
  args.emplace_back("--orphan-limit-ms");
  args.emplace_back("0");
  if (options_.beat_ms > 0) {
    args.emplace_back("--beat-ms");
    args.push_back(std::to_string(options_.beat_ms));
  }
  if (!options_.serve_dtype.empty()) {
    args.emplace_back("--serve-dtype");
    args.push_back(options_.serve_dtype);
  }
  return args;
}

}  // namespace dex::standalone
