#include "deploy/standalone/redis.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <spdlog/spdlog.h>

#include "services/base/append_log.h"
#include "services/base/errno_status.h"
#include "services/base/fd.h"
#include "services/base/files.h"

namespace dex::standalone {

namespace {

namespace fs = std::filesystem;

// With room for the longest name beside it, scheduler.sock.
constexpr size_t kLongestSocketPath = sizeof(sockaddr_un::sun_path) - 1 - 4;

std::string random_hex(base::RandomSource& random) {
  std::array<uint8_t, 32> bytes{};
  random.fill(bytes);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// The settings of jobs.md §8. No line is optional: each is there because a promise rests on it.
std::string config_text(const fs::path& directory, const RedisSetup& redis) {
  std::ostringstream text;
  text << "port 0\n"
       << "unixsocket " << quoted(redis.socket.string()) << "\n"
       << "unixsocketperm 700\n"
       << "requirepass " << redis.password << "\n"
       << "dir " << quoted(directory.string()) << "\n"
       << "daemonize no\n"
       << "logfile \"\"\n"
       << "appendonly yes\n"
       << "appendfsync always\n"
       << "no-appendfsync-on-rewrite no\n"
       << "aof-load-truncated yes\n"
       << "save \"\"\n"
       << "maxmemory 512mb\n"
       << "maxmemory-policy noeviction\n"
       << "enable-debug-command no\n"
       << "hash-max-listpack-value 512\n"
       << "stream-node-max-bytes 1024\n";
  return text.str();
}

// In the data directory; when that is too deep for a socket's name, in a private temporary one.
base::Result<fs::path> socket_path(const fs::path& directory) {
  fs::path path = directory / "redis.sock";
  if (path.string().size() <= kLongestSocketPath) return path;
  std::string temporary = "/tmp/dexd-XXXXXX";
  if (mkdtemp(temporary.data()) == nullptr) {
    return base::errno_status(errno, "cannot make a directory for the Redis socket in /tmp");
  }
  return fs::path(temporary) / "redis.sock";
}

}  // namespace

base::Result<RedisSetup> prepare_redis(const std::string& program, const fs::path& data_dir,
                                       base::RandomSource& random) {
  if (program.empty()) {
    return base::failed_precondition(
        "REDIS_MISSING",
        "redis-server is not installed; install it with: apt-get install redis-server");
  }
  RedisSetup redis;
  redis.program = program;
  const fs::path directory = data_dir / "redis";
  DEX_RETURN_IF_ERROR(base::make_directories(directory));
  DEX_ASSIGN_OR_RETURN(redis.socket, socket_path(directory));
  redis.config_file = directory / "redis.conf";
  redis.password_file = directory / "password";
  redis.password = random_hex(random);
  DEX_RETURN_IF_ERROR(
      base::write_file_atomically(redis.password_file, redis.password + "\n", 0600));
  DEX_RETURN_IF_ERROR(
      base::write_file_atomically(redis.config_file, config_text(directory, redis), 0600));
  return redis;
}

void mend_redis_log(const RedisSetup& redis) {
  const auto cut = base::cut_torn_transaction(redis.config_file.parent_path() / "appendonlydir");
  if (!cut.ok()) {
    // Redis looks at the same files next, and says what it can't do.
    spdlog::warn("redis: its log could not be looked through: {}", cut.status().to_string());
  } else if (*cut > 0) {
    spdlog::warn("redis: {} bytes of a script that was never answered are cut off its log", *cut);
  }
}

base::Status ping_redis(const RedisSetup& redis) {
  const base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::errno_status(errno, "cannot make a socket");
  const timeval limit{2, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, redis.socket.c_str(), sizeof address.sun_path - 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return base::errno_status(errno, "cannot connect to " + redis.socket.string());
  }
  const std::string request = "AUTH " + redis.password + "\r\nPING\r\n";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return base::errno_status(errno, "cannot ask Redis");
  }
  std::string answer;
  char buffer[512];
  while (answer.size() < 4096) {
    if (answer == "+OK\r\n+PONG\r\n") return {};
    if (answer.find("-") == 0 || answer.find("\r\n-") != std::string::npos) break;  // LOADING …
    const ssize_t got = recv(fd.get(), buffer, sizeof buffer, 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return base::unavailable("NOT_READY", "Redis answers " + answer.substr(0, 200));
}

}  // namespace dex::standalone
