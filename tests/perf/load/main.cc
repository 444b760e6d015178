// perf_gateway: what a gateway adds to a call and to a stream of tokens, for tests/perf/compare.
// The worker and the scheduler behind it are this process' (Backend), so everything but the gateway
// costs the same with and without it. Prints one line of JSON; "perf_gateway: …" and 1 on failure.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/perf/load/backend.h"
#include "tests/perf/load/gateway_process.h"
#include "tests/perf/load/stream_load.h"
#include "tests/perf/load/unary_load.h"

namespace {

using dex::perf::Backend;
using dex::perf::GatewayProcess;
using std::chrono::milliseconds;

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values.at(static_cast<size_t>(part * static_cast<double>(values.size() - 1)));
}

struct Unary {
  int calls = 5000;  // of each side, one by one
  int seconds_ms = 2000;
  int in_flight = 64, connections = 4;
};

nlohmann::json unary(const std::string& program, const Unary& work) {
  const Backend backend{std::chrono::seconds(1)};
  const GatewayProcess gateway(program, backend.address(), -1);
  std::vector<double> direct, through;
  constexpr int kTurns = 10;  // A B B A …
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool first = turn % 4 == 0 || turn % 4 == 3;
    for (const bool with : {first, !first}) {
      const auto more = dex::perf::latencies(with ? gateway.grpc() : backend.address(),
                                             std::max(1, work.calls / kTurns));
      auto& all = with ? through : direct;
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  const auto rate = [&](const std::string& server) {
    return dex::perf::rate(server, work.in_flight, work.connections, milliseconds(work.seconds_ms));
  };
  const double before = gateway.cpu_seconds();
  const double through_s = rate(gateway.grpc());
  const double cores = (gateway.cpu_seconds() - before) / (work.seconds_ms * 1.2e-3);
  return {{"direct_p50_us", quantile(direct, 0.5)},
          {"through_p50_us", quantile(through, 0.5)},
          {"added_p50_us", quantile(through, 0.5) - quantile(direct, 0.5)},
          {"direct_p99_us", quantile(direct, 0.99)},
          {"through_p99_us", quantile(through, 0.99)},
          {"unary_s", through_s},
          {"direct_s", rate(backend.address())},
          {"gateway_cores", cores},
          {"calls", through.size()},
          {"in_flight", work.in_flight},
          {"peak_rss_mib", gateway.resident_mib()}};
}

struct Streaming {
  int streams = 200, tokens = 100, pace_ms = 50;
};

nlohmann::json streaming(const std::string& program, const Streaming& work) {
  const Backend backend{milliseconds(work.pace_ms)};
  const GatewayProcess gateway(program, backend.address(), /*core=*/0);
  const auto direct = dex::perf::grpc_streams(backend.address(), work.streams, work.tokens);
  const double before = gateway.cpu_seconds();
  const auto sse = dex::perf::sse_streams(gateway.http(), work.streams, work.tokens);
  const double used = gateway.cpu_seconds() - before;
  const auto figures = [](const dex::perf::Streams& seen) {
    return nlohmann::json{{"token_ms", seen.token_ms},
                          {"worst_ms", seen.worst_ms},
                          {"longest_gap_ms", seen.longest_gap_ms}};
  };
  return {{"grpc", figures(direct)},
          {"sse", figures(sse)},
          {"streams", work.streams},
          {"tokens", work.tokens},
          {"pace_ms", work.pace_ms},
          {"gateway_us_a_token", used * 1e6 / work.streams / work.tokens},
          {"peak_rss_mib", gateway.resident_mib()}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures dex-gateway before a backend that costs nothing; one line of JSON.");
  app.option_defaults()->always_capture_default();
  app.require_subcommand(1);
  std::string program;
  app.add_option("--gateway", program, "path of dex-gateway")->required();
  Unary calls;
  auto* unary_app = app.add_subcommand("unary", "Generate with and without the gateway");
  unary_app->add_option("--calls", calls.calls, "one by one, of each side")
      ->check(CLI::Range(10, 1'000'000));
  unary_app->add_option("--ms", calls.seconds_ms, "how long many are in flight")
      ->check(CLI::Range(50, 60'000));
  unary_app->add_option("--in-flight", calls.in_flight)->check(CLI::Range(1, 1024));
  unary_app->add_option("--connections", calls.connections)->check(CLI::Range(1, 64));
  Streaming streams;
  auto* stream_app = app.add_subcommand(
      "streams", "server-sent events through a gateway on one core, against gRPC without it");
  stream_app->add_option("--streams", streams.streams, "at the same time")
      ->check(CLI::Range(1, 10'000));
  stream_app->add_option("--tokens", streams.tokens, "of each")->check(CLI::Range(2, 100'000));
  stream_app->add_option("--pace-ms", streams.pace_ms, "between two tokens of a stream")
      ->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  try {
    const auto found = unary_app->parsed() ? unary(program, calls) : streaming(program, streams);
    std::cout << found.dump() << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "perf_gateway: " << error.what() << std::endl;
    return 1;
  }
}
