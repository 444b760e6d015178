// dex-scheduler: jobs, files, adapters, and the work of the workers. Flags become SchedulerOptions
// here; nothing else reads argv or the environment.

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/prices.h"
#include "scheduler/server/scheduler.h"
#include "scheduler/store/store.h"
#include "services/auth/api_key.h"
#include "services/auth/listen_address.h"
#include "services/base/files.h"
#include "services/base/logging.h"
#include "services/base/signals.h"
#include "services/base/version.h"

namespace {

namespace fs = std::filesystem;
using dex::server::SchedulerOptions;

struct Flags {
  SchedulerOptions options;
  std::string redis;
  std::string redis_user;
  fs::path redis_password_file;
  fs::path admin_key_file;
  std::string log_level = "info";
  int64_t retention_days = 30;
  std::vector<std::string> prices;
  std::string currency;
};

// Each also by the environment (--lease-ms: DEX_LEASE_MS), for a dexd that starts the scheduler.
void add_times(CLI::App& app, Flags& flags) {
  SchedulerOptions& o = flags.options;
  const auto add = [&](const std::string& name, int64_t& value, int least, int most,
                       const std::string& help) {
    std::string variable = "DEX_";
    for (const char c : name)
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    app.add_option("--" + name, value, help)->check(CLI::Range(least, most))->envname(variable);
  };
  constexpr int kHour = 3'600'000, kTenMinutes = 600'000;
  add("lease-ms", o.times.lease_ms, 1000, kHour, "how long a silent worker keeps its job");
  add("settle-ms", o.times.settle_ms, 0, kHour, "grace for leases after an outage");
  add("gap-ms", o.times.gap_ms, 1000, kHour, "time without a sweep that counts as an outage");
  add("crash-backoff-ms", o.times.crash_backoff_ms, 0, kTenMinutes,
      "wait after a job's second crash");
  add("retry-backoff-ms", o.times.retry_backoff_ms, 0, kTenMinutes,
      "wait after a job's first failure");
  add("worker-timeout-ms", o.times.worker_timeout_ms, 1000, kHour,
      "silence after which a worker is lost");
  add("sweep-ms", o.sweep_ms, 50, kTenMinutes, "time between two sweeps");
  // Not less than request_ids are known for: a repeat must find the job that it made.
  app.add_option("--retention-days", flags.retention_days,
                 "days until an ended job goes, with its files; its adapter stays (30)")
      ->check(CLI::Range(1, 3650))
      ->envname("DEX_RETENTION_DAYS");
  add("beat-ms", o.beat_ms, 50, kTenMinutes, "time between heartbeats that workers are told");
}

void add_flags(CLI::App& app, Flags& flags) {
  SchedulerOptions& o = flags.options;
  app.add_option("--redis", flags.redis, "unix:/path or host:port")->required();
  app.add_option("--redis-user", flags.redis_user, "ACL user (default: Redis' own)");
  app.add_option("--redis-password-file", flags.redis_password_file, "file with the password");
  app.add_option("--admin-key-file", flags.admin_key_file,
                 "file with an API key that is the operator's, made with every scope if it is new");
  app.add_option("--data-dir", o.data_dir, "shared with the workers")->required();
  app.add_option("--models", o.models_file, "allow-list of base models, models.json")->required();
  app.add_option("--listen", o.listen, "address for gateways");
  app.add_option("--worker-listen", o.worker_listen, "address for workers");
  app.add_option("--metrics-listen", o.metrics_listen, "/metrics, /healthz, /readyz");
  app.add_option("--endpoints-file", o.endpoints_file, "written once it listens");
  app.add_option("--device-hour-price", flags.prices,
                 "what an hour of a device costs: AMOUNT, or POOL=AMOUNT (may be repeated); "
                 "estimates say what a job would cost")
      ->delimiter(',')
      ->envname("DEX_DEVICE_HOUR_PRICE");
  app.add_option("--currency", flags.currency, "of the prices, such as EUR")
      ->envname("DEX_CURRENCY");
  add_times(app, flags);
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error, off");
}

// One line of a file that only its owner reads.
dex::base::Result<std::string> read_secret(const fs::path& file) {
  DEX_ASSIGN_OR_RETURN(auto secret, dex::base::read_file(file, 4096));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  return secret;
}

dex::base::Status read_admin_key(Flags& flags) {
  if (flags.admin_key_file.empty()) return {};
  DEX_ASSIGN_OR_RETURN(flags.options.admin_key, read_secret(flags.admin_key_file));
  if (dex::auth::is_api_key(flags.options.admin_key)) return {};
  return dex::base::invalid_field(
      "--admin-key-file",
      flags.admin_key_file.string() + " does not hold an API key, dex_ and 49 letters and digits");
}

dex::base::Status read_redis(Flags& flags) {
  auto address = dex::store::RedisAddress::parse(flags.redis);
  DEX_RETURN_IF_ERROR(address.status());
  address->username = flags.redis_user;
  if (!flags.redis_password_file.empty()) {
    DEX_ASSIGN_OR_RETURN(address->password, read_secret(flags.redis_password_file));
  }
  flags.options.redis = *address;
  return {};
}

// A store that can't be used, or would lose what it acknowledges, is the operator's to mend: there
// is no use in waiting. One that does not answer yet is waited for once this program listens.
dex::base::Status check_store(const SchedulerOptions& options) {
  dex::store::Store::Options once;
  once.redis.address = options.redis;
  once.redis.connections = 1;
  once.redis.patience = std::chrono::milliseconds(500);
  once.times = options.times;
  const auto status = dex::store::Store(std::move(once)).preflight();
  return status.code() == dex::base::Code::kFailedPrecondition ? status : dex::base::Status();
}

dex::base::Status run(Flags& flags) {
  DEX_RETURN_IF_ERROR(
      dex::base::init_logging({.component = "scheduler", .level = flags.log_level, .file = {}}));
  DEX_RETURN_IF_ERROR(dex::auth::check_listen_address("--listen", flags.options.listen));
  DEX_RETURN_IF_ERROR(
      dex::auth::check_listen_address("--worker-listen", flags.options.worker_listen));
  auto prices = dex::core::parse_prices(flags.prices, flags.currency);
  DEX_RETURN_IF_ERROR(prices.status());
  flags.options.device.prices = std::move(*prices);
  DEX_RETURN_IF_ERROR(read_admin_key(flags));
  DEX_RETURN_IF_ERROR(read_redis(flags));
  DEX_RETURN_IF_ERROR(check_store(flags.options));
  const dex::base::StopSignals signals;
  auto scheduler = dex::server::Scheduler::start(flags.options);
  DEX_RETURN_IF_ERROR(scheduler.status());
  signals.wait(-1);
  spdlog::info("stopping");
  (*scheduler)->stop();
  spdlog::info("stopped");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("dex-scheduler: queues jobs and hands them to workers");
  app.set_version_flag("--version", std::string(dex::base::version()));
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  flags.options.retention_ms = flags.retention_days * 24 * 3600 * 1000;
  flags.options.data_dir = fs::absolute(flags.options.data_dir).lexically_normal();
  flags.options.models_file = fs::absolute(flags.options.models_file).lexically_normal();
  const auto status = run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "dex-scheduler: %s\n", status.message().c_str());
  return 1;
}
