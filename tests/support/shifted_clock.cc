// Preloaded into a Redis by a test: its wall clock is off by the milliseconds in the first eight
// bytes of $DEX_CLOCK_SHIFT_FILE, which may change while it runs. Its monotonic clock is the
// machine's.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

// Null: no file, no shift.
const volatile int64_t* shift_ms() {
  static const volatile int64_t* const shared = []() -> const volatile int64_t* {
    const char* path = std::getenv("DEX_CLOCK_SHIFT_FILE");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* page = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return page == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(page);
  }
  ();
  return shared;
}

// The kernel's answer, moved. −1 with errno as the call itself.
int shifted(clockid_t clock, timespec& time) {
  const long result = ::syscall(SYS_clock_gettime, clock, &time);
  const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && wall && shift_ms() != nullptr) {
    const int64_t ms = *shift_ms();
    time.tv_sec += ms / 1000;
    time.tv_nsec += (ms % 1000) * 1'000'000;
    if (time.tv_nsec >= 1'000'000'000) {
      time.tv_nsec -= 1'000'000'000;
      ++time.tv_sec;
    }
    if (time.tv_nsec < 0) {
      time.tv_nsec += 1'000'000'000;
      --time.tv_sec;
    }
  }
  return static_cast<int>(result);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  return shifted(clock, *out);
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  const int result = shifted(CLOCK_REALTIME, now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  shifted(CLOCK_REALTIME, now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}
