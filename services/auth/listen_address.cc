#include "services/auth/listen_address.h"

#include <arpa/inet.h>

#include <string>

namespace dex::auth {

namespace {

std::string host_of(std::string_view address) {
  if (address.starts_with('[')) {
    const auto end = address.find(']');
    return std::string(address.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  return std::string(address.substr(0, address.rfind(':')));
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address.starts_with("unix:") || address.starts_with("unix-abstract:")) return true;
  const std::string host = host_of(address);
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

base::Status check_listen_address(std::string_view flag, std::string_view address) {
  if (is_loopback(address)) return {};
  return base::invalid_field(
      std::string(flag), "'" + std::string(address) +
                             "' can be reached from other machines, and this server does not "
                             "authenticate its callers; use a loopback address such as "
                             "127.0.0.1:50051 (to serve others: a gateway with --auth on, or an "
                             "authenticating proxy)");
}

}  // namespace dex::auth
