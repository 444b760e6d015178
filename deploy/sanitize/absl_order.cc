// Preloaded into what deploy/check --tsan runs. ThreadSanitizer knows the order that pthread's
// mutexes give; Debian's gRPC locks absl::Mutex, which waits by futexes in a library that is built
// without it. What one thread writes before it hands a call to another through gRPC would be
// reported. So each lock and unlock is told to it here, by the address of the mutex; the work is
// done by the library's own function.
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>

#include <cstdlib>

// Of the sanitizer's runtime; absent in programs that are built without it, which inherit the
// preload.
extern "C" {
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace {

void acquired(const void* mutex) {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(mutex));
}
void releasing(const void* mutex) {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(mutex));
}

template <typename Function>
Function next(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) std::abort();  // another abseil: nothing could go on
  return reinterpret_cast<Function>(found);
}

// How names of Debian 12's abseil begin: absl and its inline name space.
#define DEX_ABSL_SYMBOL(class_and_name) "_ZN4absl7debian3" class_and_name

using Member = void (*)(absl::Mutex*);
using TryMember = bool (*)(absl::Mutex*);

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto real = next<Member>(DEX_ABSL_SYMBOL("5Mutex4LockEv"));
  real(this);
  acquired(this);
}

void Mutex::Unlock() {
  static const auto real = next<Member>(DEX_ABSL_SYMBOL("5Mutex6UnlockEv"));
  releasing(this);
  real(this);
}

bool Mutex::TryLock() {
  static const auto real = next<TryMember>(DEX_ABSL_SYMBOL("5Mutex7TryLockEv"));
  const bool locked = real(this);
  if (locked) acquired(this);
  return locked;
}

void Mutex::ReaderLock() {
  static const auto real = next<Member>(DEX_ABSL_SYMBOL("5Mutex10ReaderLockEv"));
  real(this);
  acquired(this);
}

void Mutex::ReaderUnlock() {
  static const auto real = next<Member>(DEX_ABSL_SYMBOL("5Mutex12ReaderUnlockEv"));
  releasing(this);
  real(this);
}

// A wait gives the mutex up and takes it again.
void CondVar::Wait(Mutex* mutex) {
  static const auto real =
      next<void (*)(CondVar*, Mutex*)>(DEX_ABSL_SYMBOL("7CondVar4WaitEPNS0_5MutexE"));
  releasing(mutex);
  real(this, mutex);
  acquired(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto real = next<bool (*)(CondVar*, Mutex*, Duration)>(
      DEX_ABSL_SYMBOL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  releasing(mutex);
  const bool expired = real(this, mutex, timeout);
  acquired(mutex);
  return expired;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto real = next<bool (*)(CondVar*, Mutex*, Time)>(
      DEX_ABSL_SYMBOL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  releasing(mutex);
  const bool expired = real(this, mutex, deadline);
  acquired(mutex);
  return expired;
}

ABSL_NAMESPACE_END
}  // namespace absl
