#include "tests/fuzz/run.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>

#include "tests/fuzz/mutations.h"
#include "tests/support/sanitizer.h"

namespace dex::fuzz {

namespace {

constexpr int kSanitizedSlack = 8;
constexpr int kWaitingSeconds = 60;  // a target that waits for ever takes no processor time

// What the child says of itself, in memory that both have: what it was at when it died.
struct Report {
  std::atomic<uint64_t> index{0}, done{0}, taken{0};
};

class SharedReport {
 public:
  SharedReport() {
    void* memory =
        mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory for a fuzz run");
    report_ = new (memory) Report;
  }
  ~SharedReport() { munmap(report_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report& operator*() const { return *report_; }

 private:
  Report* report_;
};

// Bytes of private memory that may be written: what RLIMIT_DATA counts.
int64_t data_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  file >> size >> resident >> shared >> text >> library >> data;
  return data * sysconf(_SC_PAGESIZE);
}

// A parser that catches bad_alloc would hide that it asked for too much; this is called before.
[[noreturn]] void out_of_room() {
  constexpr char kWords[] = "a parser asked for more memory than a fuzz input is given\n";
  [[maybe_unused]] const auto put = ::write(STDERR_FILENO, kWords, sizeof kWords - 1);
  std::abort();
}

void limit_this_process(const RunOptions& options) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (support::kSanitized) return;
  std::set_new_handler(out_of_room);
  const auto most = static_cast<rlim_t>(data_bytes() + options.room_bytes);
  const rlimit data{most, most};
  setrlimit(RLIMIT_DATA, &data);
}

// From now on, for one input: SIGPROF after the processor time, SIGALRM after a long wait.
void start_clocks(const RunOptions& options) {
  const int seconds = options.input_seconds * (support::kSanitized ? kSanitizedSlack : 1);
  const itimerval busy{{0, 0}, {seconds, 0}}, waiting{{0, 0}, {kWaitingSeconds + seconds, 0}};
  setitimer(ITIMER_PROF, &busy, nullptr);
  setitimer(ITIMER_REAL, &waiting, nullptr);
}

std::string ending_of(int status) {
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) == 0) return "";
    return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  }
  switch (WTERMSIG(status)) {
    case SIGPROF:
      return "took more processor time than one input is given";
    case SIGALRM:
      return "waited for longer than one input is given";
    default:
      return std::string("died by ") + strsignal(WTERMSIG(status));
  }
}

// `body` in a child with limits; how the child ended.
std::string in_child(const RunOptions& options, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return std::string("could not be started: ") + std::strerror(errno);
  if (child == 0) {
    for (const int number : {SIGPROF, SIGALRM, SIGABRT, SIGSEGV}) std::signal(number, SIG_DFL);
    limit_this_process(options);
    // What nobody catches must end the child here, not in those who called run().
    [&]() noexcept { body(); }();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::string("could not be waited for: ") + std::strerror(errno);
  }
  return ending_of(status);
}

void give(OneInput target, const std::string& input, const RunOptions& options) {
  start_clocks(options);
  target(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

Outcome run(OneInput target, const Corpus& corpus, const RunOptions& options) {
  const SharedReport shared;
  Report& report = *shared;
  Outcome outcome;
  outcome.failure = in_child(options, [&] {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
    for (uint64_t i = 0; i < options.count; ++i) {
      if (i >= corpus.seeds.size() && std::chrono::steady_clock::now() > end) break;
      report.index = i;
      give(target, input_of(corpus, options.seed, i), options);
      report.done = i + 1;
      report.taken = taken_count();
    }
  });
  outcome.inputs = report.done;
  outcome.taken = report.taken;
  outcome.index = report.index;
  return outcome;
}

std::string run_one(OneInput target, const std::string& input, const RunOptions& options) {
  return in_child(options, [&] { give(target, input, options); });
}

}  // namespace dex::fuzz
