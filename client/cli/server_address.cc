#include "client/cli/server_address.h"

#include <nlohmann/json.hpp>

#include "services/base/files.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestFile = 64 << 10;
constexpr const char* kWayOut = "; start dexd, or name a server with --server or DEX_SERVER";

base::Result<ServerAddress> from_file(const fs::path& file,
                                      const std::function<bool(int64_t pid)>& alive) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(file, kLargestFile));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto grpc = json.is_object() ? json.find("grpc") : json.end();
  if (grpc == json.end() || !grpc->is_string()) {
    return base::invalid_argument("INVALID_FIELD",
                                  file.string() + " names no \"grpc\" address" + kWayOut);
  }
  const auto pid = json.find("pid");
  if (pid != json.end() && pid->is_number_integer() && !alive(pid->get<int64_t>())) {
    return base::unavailable("", file.string() + " is left over from a dexd (process " +
                                     std::to_string(pid->get<int64_t>()) + ") that is gone" +
                                     kWayOut);
  }
  return ServerAddress{grpc->get<std::string>(), file.string()};
}

}  // namespace

base::Result<ServerAddress> find_server(const ServerSources& sources,
                                        const std::function<bool(int64_t pid)>& alive) {
  if (!sources.flag.empty()) return ServerAddress{sources.flag, "--server"};
  const ServerAddress profile{sources.profile_server, "profile " + sources.profile};
  if (sources.profile_chosen && !profile.address.empty()) return profile;
  if (!sources.variable.empty()) return ServerAddress{sources.variable, "DEX_SERVER"};
  if (!profile.address.empty()) return profile;
  if (!sources.data_dir.empty()) {
    const fs::path file = sources.data_dir / "endpoints.json";
    std::error_code unreadable;  // a folder that may not be looked into holds nothing for us
    if (fs::exists(file, unreadable)) return from_file(file, alive);
  }
  return ServerAddress{"localhost:50051", "the default"};
}

}  // namespace dex::cli
