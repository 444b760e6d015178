#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/http_client.h"

namespace dex::support {

// What a Prometheus at "127.0.0.1:9090" answers to GET /api/v1/<path>: its `data`; null while it
// does not answer, or with an error. `path` is escaped already.
inline nlohmann::json prometheus_data(const std::string& address, const std::string& path) {
  RawConnection connection(port_of(address));
  // 1.0: no chunks.
  if (!connection.connected() ||
      !connection.send("GET /api/v1/" + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n")) {
    return {};
  }
  const std::string answer = connection.read_all();
  const auto body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return {};
  auto json = nlohmann::json::parse(answer.substr(body + 4), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("data") ? json["data"] : nlohmann::json();
}

// Health of its targets by job: "up", "down" with the reason, or "unknown" before the first scrape.
inline std::map<std::string, std::string> target_health(const std::string& prometheus) {
  std::map<std::string, std::string> health;
  const auto data = prometheus_data(prometheus, "targets?state=active");
  if (!data.is_object()) return health;
  for (const auto& target : data.at("activeTargets")) {
    const std::string error = target.at("lastError");
    health[target.at("labels").at("job")] =
        target.at("health").get<std::string>() + (error.empty() ? "" : ": " + error);
  }
  return health;
}

}  // namespace dex::support
