// Stands for dex-scheduler, dex-gateway and dex-worker where only their life matters: takes the
// same flags, writes its addresses, answers every HTTP request on its metrics port with a metric,
// ends on SIGTERM. Its deeds go into journal.txt beside its endpoints file. Which of them it is,
// its own name says; the one named by DEX_FAKE_FAILS ends at once.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "services/base/fd.h"
#include "services/base/files.h"
#include "services/base/signals.h"

namespace {

using dex::base::Fd;

struct Listener {
  Fd fd;
  std::string address;
};

Listener listen_on_socket(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  path.copy(where.sun_path, sizeof where.sun_path - 1);
  Listener listener{Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), "unix:" + path};
  unlink(path.c_str());
  if (bind(listener.fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      listen(listener.fd.get(), 16) != 0) {
    std::perror("listen");
    std::exit(4);
  }
  return listener;
}

Listener listen_on(const std::string& address) {
  if (address.starts_with("unix:")) return listen_on_socket(address.substr(5));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  Listener listener{Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), ""};
  const int on = 1;
  setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = sizeof where;
  if (bind(listener.fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      listen(listener.fd.get(), 16) != 0 ||
      getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) {
    std::perror("listen");
    std::exit(4);
  }
  listener.address = "127.0.0.1:" + std::to_string(ntohs(where.sin_port));
  return listener;
}

void answer(int listener) {
  const Fd connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  char request[1024];
  (void)!read(connection.get(), request, sizeof request);
  constexpr std::string_view kReply = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nfake 1\n";
  (void)!write(connection.get(), kReply.data(), kReply.size());
}

}  // namespace

int main(int argc, char** argv) {
  const dex::base::StopSignals signals;
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  const char* fails = std::getenv("DEX_FAKE_FAILS");
  if (fails != nullptr && name == fails) {
    std::cerr << name << " finds that all is lost" << std::endl;
    return 3;
  }
  const std::filesystem::path file = flags["--endpoints-file"];
  std::map<std::string, Listener> listeners;
  nlohmann::json endpoints;
  for (const auto& [flag, key] :
       std::map<std::string, std::string>{{"--listen", "grpc"},
                                          {"--worker-listen", "worker"},
                                          {"--http-listen", "http"},
                                          {"--metrics-listen", "metrics"}}) {
    if (!flags.contains(flag)) continue;
    listeners[key] = listen_on(flags[flag]);
    endpoints[key] = listeners[key].address;
  }
  std::ofstream journal(file.parent_path() / "journal.txt", std::ios::app);
  journal << "start " << name << std::endl;
  if (!dex::base::write_file_atomically(file, endpoints.dump()).ok()) return 5;
  while (!signals.wait(0)) {
    pollfd entry{listeners["metrics"].fd.get(), POLLIN, 0};
    if (poll(&entry, 1, 20) == 1) answer(entry.fd);
  }
  journal << "stop " << name << std::endl;
  return 0;
}
