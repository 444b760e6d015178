#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/gateway/gateway_fixture.h"

namespace dex::gateway {

// A reply of the HTTP door, taken apart; chunks put together.
struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool whole = true;  // chunked: its end mark came

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body); }
  // "model_not_found model": code and param of an error
  [[nodiscard]] std::string error() const {
    const auto error = json().at("error");
    return error.at("code").get<std::string>() +
           (error.at("param").is_string() ? " " + error.at("param").get<std::string>() : "");
  }
  // The data of server-sent events.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> found;
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: ")) found.push_back(line.substr(6));
    }
    return found;
  }
};

inline HttpReply parse_reply(const std::string& text) {
  HttpReply reply;
  const auto end = text.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  std::istringstream lines(text.substr(0, end));
  std::string line;
  std::getline(lines, line);
  reply.status = std::stoi(line.substr(line.find(' ') + 1));
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    std::string name = line.substr(0, line.find(':'));
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    reply.headers[name] = line.substr(std::min(line.size(), line.find(':') + 2));
  }
  const std::string rest = text.substr(end + 4);
  if (reply.headers["transfer-encoding"] != "chunked") {
    reply.body = rest;
    return reply;
  }
  reply.whole = false;
  for (size_t at = 0; at < rest.size();) {
    const auto line_end = rest.find("\r\n", at);
    if (line_end == std::string::npos) break;
    const size_t size = std::stoul(rest.substr(at, line_end - at), nullptr, 16);
    if (size == 0) {
      reply.whole = true;
      break;
    }
    reply.body += rest.substr(line_end + 2, size);
    at = line_end + 2 + size + 2;
  }
  return reply;
}

// The gateway's fixture with a client that speaks HTTP.
class OpenAiTest : public GatewayTest {
 protected:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  HttpReply send(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& type = "application/json", const Headers& more = {}) {
    support::RawConnection connection(support::port_of(gateway_->http_address()));
    std::string request =
        method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    if (!body.empty() || method == "POST") {
      request +=
          "Content-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    for (const auto& [name, value] : more) request += name + ": " + value + "\r\n";
    connection.send(request + "\r\n" + body);
    return parse_reply(connection.read_all());
  }
  HttpReply post(const std::string& path, const nlohmann::json& body) {
    return send("POST", path, body.dump());
  }
};

}  // namespace dex::gateway
