#include "services/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "services/base/clock.h"
#include "services/base/errno_status.h"

extern char** environ;  // NOLINT: POSIX's own name

namespace dex::base {

namespace {

constexpr int kFirstInherited = 3;

// Frees what posix_spawn wants initialised.
struct SpawnSetup {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('='));
    if (std::ranges::none_of(added, [&](const auto& pair) { return pair.first == name; })) {
      result.emplace_back(text);
    }
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Copies far above 3, 4, …: otherwise placing one descriptor could overwrite another's source.
Result<std::vector<Fd>> copies_out_of_the_way(const std::vector<int>& fds) {
  std::vector<Fd> result;
  for (const int fd : fds) {
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 100));
    if (!copy) return errno_status(errno, "cannot copy descriptor " + std::to_string(fd));
    result.push_back(std::move(copy));
  }
  return result;
}

void set_attributes(posix_spawnattr_t& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

void set_files(posix_spawn_file_actions_t& actions, const Subprocess::Options& options,
               const std::vector<Fd>& inherited) {
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!options.stdout_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.stdout_file.c_str(), kAppend,
                                     0600);
  }
  if (!options.stderr_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, options.stderr_file.c_str(), kAppend,
                                     0600);
  }
  int target = kFirstInherited;
  for (const Fd& fd : inherited) posix_spawn_file_actions_adddup2(&actions, fd.get(), target++);
  posix_spawn_file_actions_addclosefrom_np(&actions, target);
}

}  // namespace

std::string ExitStatus::to_string() const {
  if (signal == 0) return "exit code " + std::to_string(code);
  const char* text = sigdescr_np(signal);
  return "signal " + std::to_string(signal) + " (" + (text != nullptr ? text : "unknown") + ")";
}

Subprocess::Subprocess(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

Result<std::unique_ptr<Subprocess>> Subprocess::start(const Options& options) {
  DEX_ASSIGN_OR_RETURN(const auto inherited, copies_out_of_the_way(options.inherit));
  SpawnSetup setup;
  set_attributes(setup.attributes);
  set_files(setup.actions, options, inherited);

  std::vector<std::string> arguments{options.program};
  arguments.insert(arguments.end(), options.args.begin(), options.args.end());
  auto environment = merged_environment(options.environment);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, options.program.c_str(), &setup.actions, &setup.attributes,
                                 pointers(arguments).data(), pointers(environment).data());
  if (error != 0) return errno_status(error, "cannot start " + options.program);

  // Not a child of anybody else and not reaped yet, so the pid is still this process.
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    const int reason = errno;
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return errno_status(reason, "cannot watch " + options.program);
  }
  // Best effort: a lower priority is a courtesy, not a condition.
  if (options.niceness > 0) setpriority(PRIO_PGRP, static_cast<id_t>(pid), options.niceness);
  return std::unique_ptr<Subprocess>(new Subprocess(pid, std::move(pidfd)));
}

Subprocess::~Subprocess() {
  terminate(0);
}

std::optional<ExitStatus> Subprocess::reap(bool block) {
  const std::lock_guard lock(mutex_);
  if (exit_) return exit_;
  siginfo_t info{};
  int got = 0;
  do {
    info.si_pid = 0;
    got = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | (block ? 0 : WNOHANG));
  } while (got != 0 && errno == EINTR);
  if (got == 0 && info.si_pid == 0) return std::nullopt;

  ExitStatus result;
  result.code = -1;  // stays when somebody else reaped it: there is no status to have
  if (got == 0) {
    // Before it is reaped the number cannot belong to anybody else.
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    const bool exited = info.si_code == CLD_EXITED;
    result.code = exited ? info.si_status : 0;
    result.signal = exited ? 0 : info.si_status;
  }
  exit_ = result;
  return exit_;
}

std::optional<ExitStatus> Subprocess::wait(int64_t timeout_ms) {
  const SystemClock clock;
  const int64_t end = clock.steady_ms() + timeout_ms;
  while (true) {
    if (auto done = reap(false)) return done;
    const int64_t left = end - clock.steady_ms();
    if (left <= 0) return std::nullopt;
    pollfd entry{pidfd_.get(), POLLIN, 0};
    poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
  }
}

void Subprocess::signal(int number) {
  const std::lock_guard lock(mutex_);
  if (!exit_) kill(-pid_, number);
}

ExitStatus Subprocess::terminate(int64_t grace_ms) {
  if (grace_ms > 0) {
    signal(SIGTERM);
    if (auto done = wait(grace_ms)) return *done;
  }
  signal(SIGKILL);
  return *reap(true);
}

bool die_with_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  return parent == 0 || getppid() == parent;
}

}  // namespace dex::base
