#include "tests/perf/load/gateway_process.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/eventually.h"
#include "tests/support/http_client.h"
#include "tests/support/processes.h"

namespace dex::perf {

GatewayProcess::GatewayProcess(const std::string& program, const std::string& scheduler, int core) {
  const auto endpoints = folder_.path() / "endpoints.json", log = folder_.path() / "log";
  base::Subprocess::Options options;
  options.program = program;
  options.args = {"--scheduler",      scheduler,          "--listen",         "127.0.0.1:0",
                  "--http-listen",    "127.0.0.1:0",      "--log-level",      "warn",
                  "--endpoints-file", endpoints.string(), "--die-with-parent"};
  if (core >= 0) {
    options.args.insert(options.args.begin(), {"--cpu-list", std::to_string(core), program});
    options.program = "taskset";
  }
  options.stdout_file = options.stderr_file = log;
  auto started = base::Subprocess::start(options);
  if (!started.ok()) throw std::runtime_error(started.status().message());
  process_ = std::move(started).value();
  if (!support::eventually([&] { return std::filesystem::exists(endpoints); },
                           support::kPatience_ms)) {
    std::ifstream said(log);
    throw std::runtime_error(
        program + " did not start: " + std::string(std::istreambuf_iterator<char>(said), {}));
  }
  const auto addresses = nlohmann::json::parse(std::ifstream(endpoints));
  grpc_ = addresses.at("grpc").get<std::string>();
  http_ = addresses.at("http").get<std::string>();
  const int port = support::port_of(http_);
  if (!support::eventually(
          [&] { return support::http_get(port, "/readyz").starts_with("HTTP/1.1 200"); },
          support::kPatience_ms))
    throw std::runtime_error(program + " took no routes from the backend");
}

double GatewayProcess::cpu_seconds() const {
  std::ifstream file("/proc/" + std::to_string(process_->pid()) + "/stat");
  std::string text(std::istreambuf_iterator<char>(file), {});
  // Fields 14 and 15, counted from 1; the second one, the name, is in brackets and may hold spaces.
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double GatewayProcess::resident_mib() const {
  return support::resident_mib(process_->pid());
}

}  // namespace dex::perf
