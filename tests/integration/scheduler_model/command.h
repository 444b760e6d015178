#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

namespace dex::model {

// One step of the model test: what is done. All else is drawn from `dice` at the moment of the
// step, mostly so that it fits what the store holds then (a job that runs, a name that is taken).
enum class Kind {
  kSubmit,
  kClaim,
  kBeat,
  kFinish,
  kCancel,
  kPause,
  kResume,
  kRedrive,
  kUpdate,
  kPurge,
  kCheckpoint,
  kTenant,
  kWorker,
  kFile,
  kTime,       // the clock moves, now and then backwards
  kSweep,      // a little later
  kZombie,     // a worker sleeps past its lease while the others go on
  kReconnect,  // a scheduler is replaced
  kRestart,    // kill -9 of Redis, which comes back
  kArchive,
  kAdapter,
  kDamage,  // a set is changed by hand, and reconcile mends it
};

struct Command {
  Kind kind = Kind::kTime;
  uint64_t dice = 0;
};
std::ostream& operator<<(std::ostream& out, const Command& command);

// Random numbers that a seed repeats on every machine (SplitMix64).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // 0 … n − 1; 0 when n is not positive.
  int pick(int n);
  bool chance(int percent) { return pick(100) < percent; }
  template <typename T>
  const T& of(const std::vector<T>& list) {  // not empty
    return list[static_cast<size_t>(pick(static_cast<int>(list.size())))];
  }

 private:
  uint64_t state_;
};

}  // namespace dex::model
