#include "tests/support/program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "services/base/fd.h"
#include "tests/support/content_of.h"
#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace dex::support {

void Program::start() {
  ++starts_;
  base::Subprocess::Options process;
  // As dexd starts its children: what it execs dies with this thread, however the test ends.
  process.program = (build_dir() / "bin/dexd").string();
  process.args = {"--as-child", std::to_string(::getpid()), options_.program.string()};
  process.args.insert(process.args.end(), options_.args.begin(), options_.args.end());
  process.stdout_file = options_.log_file;
  process.stderr_file = options_.log_file;
  there([&] {
    auto started = base::Subprocess::start(process);
    if (!started.ok()) throw std::runtime_error(started.status().to_string());
    process_ = std::move(started).value();
  });
}

void Program::there(const std::function<void()>& act) const {
  if (options_.there) {
    options_.there(act);
  } else {
    act();
  }
}

std::string Program::page(const std::string& path) const {
  std::string answer;
  there([&] { answer = http_get(port_of(options_.metrics), path); });
  return answer;
}

void Program::kill() {
  if (process_) process_->terminate(0);
  process_.reset();
}

void Program::signal(int number) {
  if (process_) process_->signal(number);
}

int Program::wait(int64_t limit_ms) {
  if (!process_) return -1;
  const auto end = process_->wait(limit_ms);
  kill();
  if (!end) return -1;
  return end->signal != 0 ? 128 + end->signal : end->code;
}

int Program::stop(int64_t limit_ms) {
  signal(SIGTERM);
  return wait(limit_ms);
}

bool Program::running() const {
  return process_ && !process_->wait(0).has_value();
}

bool Program::ready() const {
  if (!running()) return false;
  const std::string answer = page("/readyz");
  return answer.find(" 200 ") < answer.find('\n');
}

double Program::metric(const std::string& metric, const std::string& label) const {
  std::istringstream lines(page("/metrics"));
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool named = line.starts_with(metric + " ") || line.starts_with(metric + "{");
    if (named && line.find(label) != std::string::npos) {
      sum += std::stod(line.substr(line.rfind(' ') + 1));
    }
  }
  return sum;
}

std::string Program::log() const {
  return content_of(options_.log_file);
}

std::vector<pid_t> Program::children(const std::string& program) const {
  if (!running()) return {};
  return children_of(pid(), program);
}

std::string free_address() {
  static std::set<int> given;
  static std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<int> ports(20'000, 32'000);
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = ports(random);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<uint16_t>(port));
    const base::Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) continue;
    if (given.insert(port).second) return "127.0.0.1:" + std::to_string(port);
  }
  throw std::runtime_error("no port of loopback is free");
}

}  // namespace dex::support
