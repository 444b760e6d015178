// dex-gateway: the platform's one public door. Everything it does sits behind
// dex::gateway::Gateway.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "services/auth/listen_address.h"
#include "services/base/files.h"
#include "services/base/logging.h"
#include "services/base/signals.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"
#include "services/gateway/gateway.h"

namespace {

using dex::base::Status;
using dex::gateway::Gateway;

struct Arguments {
  Gateway::Options gateway;
  std::filesystem::path endpoints_file;
  std::string log_level = "info";
  double grace_seconds = 10;
  bool with_parent = false;
  std::string auth;  // on, off; empty: by the addresses
  int requests_per_minute = -1;
};

// Off is for this machine alone: elsewhere it is on unless somebody says otherwise, which is then
// refused (api.md §1).
void decide_authentication(Arguments& arguments) {
  auto& gateway = arguments.gateway;
  const bool local =
      dex::auth::is_loopback(gateway.listen) && dex::auth::is_loopback(gateway.http_listen);
  gateway.authenticate = arguments.auth.empty() ? !local : arguments.auth == "on";
  constexpr uint32_t kRequestsPerMinute = 600;
  gateway.requests_per_minute = arguments.requests_per_minute >= 0
                                    ? static_cast<uint32_t>(arguments.requests_per_minute)
                                : gateway.authenticate ? kRequestsPerMinute
                                                       : 0;
}

Status write_endpoints(const std::filesystem::path& path, const Gateway& gateway) {
  const nlohmann::json endpoints = {{"grpc", gateway.grpc_address()},
                                    {"http", gateway.http_address()},
                                    {"metrics", gateway.metrics_address()}};
  return dex::base::write_file_atomically(path, endpoints.dump(2) + "\n");
}

Status run(const Arguments& arguments, const dex::base::StopSignals& signals) {
  DEX_RETURN_IF_ERROR(dex::base::init_logging({"gateway", arguments.log_level, {}}));
  DEX_ASSIGN_OR_RETURN(const auto gateway, Gateway::start(arguments.gateway));
  spdlog::info("listening: gRPC {}, HTTP {}, metrics {}", gateway->grpc_address(),
               gateway->http_address(), gateway->metrics_address());
  if (!arguments.endpoints_file.empty()) {
    DEX_RETURN_IF_ERROR(write_endpoints(arguments.endpoints_file, *gateway));
  }
  signals.wait(-1);
  spdlog::info("stopping: calls may end within {} s", arguments.grace_seconds);
  const auto grace = std::chrono::duration<double>(arguments.grace_seconds);
  gateway->stop(std::chrono::duration_cast<std::chrono::milliseconds>(grace));
  spdlog::info("stopped");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const dex::base::StopSignals signals;
  Arguments arguments;
  arguments.gateway.version = dex::base::version();
  arguments.gateway.commit = dex::base::commit();

  CLI::App app("DEX gateway: the public gRPC and HTTP door of the platform.");
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", std::string(dex::base::version()));
  app.add_option("--scheduler", arguments.gateway.scheduler, "address of the scheduler")
      ->required();
  app.add_option("--listen", arguments.gateway.listen, "gRPC; loopback only without --auth on");
  app.add_option("--http-listen", arguments.gateway.http_listen,
                 "HTTP; loopback only without --auth on");
  app.add_option("--http-threads", arguments.gateway.http_threads, "threads of the HTTP door")
      ->check(CLI::Range(1, 64));
  app.add_option("--auth", arguments.auth,
                 "whether callers must show an API key: on or off. Off, the default on loopback, "
                 "makes every caller this machine's operator and is refused on other addresses, "
                 "where on is the default")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
         "--requests-per-minute", arguments.requests_per_minute,
         "that each tenant may make at this gateway, 0 = no limit (600 with --auth on, else "
         "no limit)")
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--cors-origin", arguments.gateway.cors_origins,
                 "a web origin whose pages may use the HTTP door, such as https://app.example.com; "
                 "may be given several times")
      ->expected(1)
      ->take_all();
  app.add_option("--web-root", arguments.gateway.web_root,
                 "folder of the built dashboard, served at /; none: a page that says so");
  app.add_option("--metrics-listen", arguments.gateway.metrics_listen,
                 "/metrics, /healthz, /readyz; loopback only, port 0 = any free one");
  app.add_option("--audit-log", arguments.gateway.audit_log,
                 "file to which a JSON line is appended for each call that changes something: who, "
                 "what, on which object, with what result; none: no log");
  app.add_option("--endpoints-file", arguments.endpoints_file,
                 "written once everything listens: JSON with grpc, http, metrics");
  app.add_option("--grace-seconds", arguments.grace_seconds, "how long open calls may last on stop")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--log-level", arguments.log_level, "trace, debug, info, warn, error, off");
  app.add_flag("--die-with-parent", arguments.with_parent,
               "end at once when the process that started this one ends");
  CLI11_PARSE(app, argc, argv);
  if (arguments.with_parent && !dex::base::die_with_parent()) return 1;

  decide_authentication(arguments);
  const Status status = run(arguments, signals);
  if (status.ok()) return 0;
  std::cerr << "dex-gateway: " << status.message() << "\n";
  return 1;
}
