// dexd: the whole platform on one machine with one command.

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "deploy/standalone/child.h"
#include "deploy/standalone/platform.h"
#include "services/auth/listen_address.h"
#include "services/base/data_dir.h"
#include "services/base/logging.h"
#include "services/base/signals.h"
#include "services/base/version.h"

namespace {

namespace fs = std::filesystem;
using dex::standalone::PlatformOptions;

constexpr const char* kUsage =
    "usage: dexd [--data-dir DIR] [options]\n"
    "\n"
    "Starts Redis, scheduler, gateway and worker, keeps them running, and stops them on Ctrl-C or\n"
    "SIGTERM (a second one does not wait for a running step). Everything it knows is in DIR; a "
    "second\n"
    "start finds every job, file and adapter. Addresses: DIR/endpoints.json, written when all is\n"
    "ready, removed at the end. Logs: DIR/logs.\n"
    "\n"
    "  --data-dir DIR    where everything is kept, made when missing (DEX_DATA_DIR, else\n"
    "                    ~/.local/share/dex: there dexctl finds it without --server)\n"
    "  --grpc-port N     port of the gRPC door, 0 = any free one (50051)\n"
    "  --http-port N     port of the HTTP door, 0 = any free one (8080)\n"
    "  --host ADDRESS    where both doors listen (127.0.0.1); 0.0.0.0: on every address of this\n"
    "                    machine, without encryption: put a proxy that ends TLS in front\n"
    "  --auth on|off     whether callers must show an API key. Off, the default on loopback, is\n"
    "                    refused elsewhere, where on is the default. On writes the operator's "
    "first\n"
    "                    key to DIR/admin.key\n"
    "  --web-root DIR    the built dashboard, served at / of the HTTP door (the folder web beside\n"
    "                    this program's, if there is one)\n"
    "  --cors-origin O   a web origin whose pages may use the HTTP door; may be given several "
    "times\n"
    "  --models FILE     allow-list of base models (.deps/models/models.json, looked for in the\n"
    "                    folders above this program and above the working directory)\n"
    "  --threads N       compute threads of the trainer and of the engine, 0 = all cores (0)\n"
    "  --ranks N         trainers that compute each fine-tuning job together, 1 to 64 (1)\n"
    "  --serve-dtype T   bf16, f32, int8 or int4 (weights only) for serving (as the model is "
    "stored)\n"
    "  --stop-grace N    seconds that a trainer may take for its last checkpoint (300)\n"
    "  --with-prometheus start Debian's Prometheus too: metrics of 15 days, 512 MB at most, in\n"
    "                    DIR/prometheus; address in endpoints.json, alerts and rules in\n"
    "                    DIR/monitoring\n"
    "  --prometheus-port N  its port on 127.0.0.1, 0 = any free one (0)\n"
    "  --log-level L     trace, debug, info, warn, error, off (info)\n"
    "  --version, --help\n"
    "\n"
    "The scheduler's times are set by the environment: DEX_BEAT_MS (here 5000), DEX_LEASE_MS and\n"
    "the others that dex-scheduler --help names.\n";

struct Arguments {
  PlatformOptions platform;
  std::string auth;  // on, off; empty: by the address
  std::string log_level = "info";
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// The program of that name in the folders of PATH; empty when there is none.
std::string find_in_path(std::string_view name) {
  const std::string variable = environment("PATH");
  std::string_view rest = variable.empty() ? "/usr/bin:/bin" : std::string_view(variable);
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, colon)) / name;
    if (candidate.is_absolute() && access(candidate.c_str(), X_OK) == 0) return candidate.string();
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  }
  return {};
}

// Looks for .deps/models/models.json in `start` and every folder above it.
std::optional<fs::path> find_models(fs::path start) {
  while (true) {
    const auto candidate = start / ".deps/models/models.json";
    if (fs::exists(candidate)) return candidate;
    if (!start.has_parent_path() || start == start.parent_path()) return std::nullopt;
    start = start.parent_path();
  }
}

// Flags without a value.
bool take_switch(std::string_view flag, PlatformOptions& platform) {
  if (flag != "--with-prometheus") return false;
  platform.with_prometheus = true;
  return true;
}

// False after a message to stderr.
bool take(std::string_view flag, std::string_view value, Arguments& arguments) {
  auto& platform = arguments.platform;
  int64_t seconds = 0;
  bool good = true;
  if (flag == "--data-dir") {
    platform.data_dir = fs::absolute(value).lexically_normal();
  } else if (flag == "--models") {
    platform.models_file = fs::absolute(value).lexically_normal();
  } else if (flag == "--grpc-port") {
    good = parse(value, platform.grpc_port);
  } else if (flag == "--http-port") {
    good = parse(value, platform.http_port);
  } else if (flag == "--host") {
    platform.host = value;
  } else if (flag == "--auth") {
    if (value != "on" && value != "off") {
      std::fprintf(stderr, "dexd: --auth wants on or off, got '%s'\n", std::string(value).c_str());
      return false;
    }
    arguments.auth = value;
  } else if (flag == "--prometheus-port") {
    good = parse(value, platform.prometheus_port);
  } else if (flag == "--web-root") {
    platform.web_root = fs::absolute(value).lexically_normal();
  } else if (flag == "--cors-origin") {
    platform.cors_origins.emplace_back(value);
  } else if (flag == "--threads") {
    good = parse(value, platform.threads);
  } else if (flag == "--ranks") {
    good = parse(value, platform.ranks) && platform.ranks >= 1 && platform.ranks <= 64;
  } else if (flag == "--serve-dtype") {
    if (value != "bf16" && value != "f32" && value != "int8" && value != "int4") {
      std::fprintf(stderr, "dexd: --serve-dtype wants bf16, f32, int8 or int4, got '%s'\n",
                   std::string(value).c_str());
      return false;
    }
    platform.serve_dtype = value;
  } else if (flag == "--stop-grace") {
    good = parse(value, seconds) && seconds >= 0;
    platform.stop_grace_ms = seconds * 1000;
  } else if (flag == "--log-level") {
    arguments.log_level = value;
  } else {
    std::fprintf(stderr, "dexd: unknown option %s; dexd --help lists them\n",
                 std::string(flag).c_str());
    return false;
  }
  if (!good) {
    std::fprintf(stderr, "dexd: %s wants a number in its range, got '%s'\n",
                 std::string(flag).c_str(), std::string(value).c_str());
  }
  return good;
}

// "--flag value" and "--flag=value".
bool parse_arguments(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    std::string_view flag = argv[i];
    std::string_view value;
    if (take_switch(flag, arguments.platform)) continue;
    if (const auto equals = flag.find('='); equals != std::string_view::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      std::fprintf(stderr, "dexd: %s wants a value; dexd --help explains\n", argv[i]);
      return false;
    }
    if (!take(flag, value, arguments)) return false;
  }
  if (arguments.platform.data_dir.empty()) {
    arguments.platform.data_dir =
        dex::base::default_data_dir(environment("DEX_DATA_DIR"), environment("HOME"));
  }
  if (arguments.platform.data_dir.empty()) {
    std::fprintf(stderr,
                 "dexd: no --data-dir DIR, and neither DEX_DATA_DIR nor HOME is set; dexd --help "
                 "explains\n");
    return false;
  }
  return true;
}

// Without keys only this machine may call (api.md §1).
dex::base::Status decide_authentication(Arguments& arguments) {
  auto& platform = arguments.platform;
  const std::string address = platform.host + ":" + std::to_string(platform.grpc_port);
  platform.authenticate =
      arguments.auth.empty() ? !dex::auth::is_loopback(address) : arguments.auth == "on";
  if (platform.authenticate) return {};
  return dex::auth::check_listen_address("--host", address);
}

dex::base::Status run(Arguments& arguments) {
  auto& platform = arguments.platform;
  DEX_RETURN_IF_ERROR(decide_authentication(arguments));
  DEX_RETURN_IF_ERROR(
      dex::base::init_logging({.component = "dexd", .level = arguments.log_level, .file = {}}));
  const fs::path self = fs::read_symlink("/proc/self/exe");
  // The scheduler reads it too and tells its workers, unless they know better.
  if (!environment("DEX_BEAT_MS").empty()) platform.beat_ms = 0;
  platform.launcher = self.string();
  platform.program_dir = self.parent_path();
  platform.redis_program = find_in_path("redis-server");
  platform.prometheus_program = find_in_path("prometheus");
  if (platform.models_file.empty()) {
    auto models = find_models(platform.program_dir);
    if (!models) models = find_models(fs::current_path());
    platform.models_file = models.value_or(fs::current_path() / ".deps" / "models" / "models.json");
  }
  const fs::path built_pages = platform.program_dir.parent_path() / "web";
  if (platform.web_root.empty() && fs::exists(built_pages / "index.html")) {
    platform.web_root = built_pages;
  }
  const dex::base::StopSignals signals;
  const dex::base::SystemClock clock;
  dex::base::SystemRandom random;
  return dex::standalone::Platform(platform, signals, clock, random).run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--as-child") == 0) {
    return dex::standalone::run_as_child(argc, argv);
  }
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (std::strcmp(argv[i], "--version") == 0) {
      std::printf("dexd %s\n", std::string(dex::base::version()).c_str());
      return 0;
    }
  }
  Arguments arguments;
  if (!parse_arguments(argc, argv, arguments)) return 2;
  const auto status = run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "dexd: %s\n", status.message().c_str());
  return 1;
}
