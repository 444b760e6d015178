#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "tests/support/http_client.h"

namespace dex::support {

// One answer of an HTTP server, read from a connection that may go on afterwards.
struct HttpReply {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool whole = false;  // the body came to its end
};

inline HttpReply read_head(RawConnection& connection) {
  HttpReply reply;
  const std::string head = connection.read_until("\r\n\r\n");
  if (head.size() < 12) return reply;
  reply.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const auto end = head.find("\r\n", at);
    const std::string line = head.substr(at, end - at);
    at = end + 2;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    reply.headers[name] = line.substr(std::min(colon + 2, line.size()));
  }
  return reply;
}

// `bodiless`: the answer to a HEAD request.
inline HttpReply read_reply(RawConnection& connection, bool bodiless = false) {
  HttpReply reply = read_head(connection);
  if (bodiless || reply.status == 204 || reply.status == 304) {
    reply.whole = reply.status != 0;
  } else if (reply.headers.count("content-length") != 0) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    reply.body = connection.read_exactly(length);
    reply.whole = reply.body.size() == length;
  } else if (reply.headers["transfer-encoding"] == "chunked") {
    while (true) {
      const std::string line = connection.read_until("\r\n");
      if (line.size() < 3) break;
      const size_t length = std::stoul(line, nullptr, 16);
      reply.body += connection.read_exactly(length);
      connection.read_exactly(2);
      if (length != 0) continue;
      reply.whole = true;
      break;
    }
  }
  return reply;
}

// The text of a request with these lines ("Name: value\r\n" each) and body.
inline std::string request_text(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& lines = "") {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + lines;
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

// Asks on a connection of its own.
inline HttpReply ask(int port, const std::string& method, const std::string& path,
                     const std::string& body = "", const std::string& lines = "") {
  RawConnection connection(port);
  connection.send(request_text(method, path, body, lines));
  return read_reply(connection, method == "HEAD");
}

}  // namespace dex::support
