#pragma once

#include <cstdint>
#include <mutex>
#include <random>
#include <span>

namespace dex::base {

// Random bytes for ids, back-off and keys, passed in so that tests repeat. Thread-safe.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual void fill(std::span<uint8_t> bytes) = 0;
};

// The kernel's generator; good enough for secrets.
class SystemRandom final : public RandomSource {
 public:
  void fill(std::span<uint8_t> bytes) override;
};

// The same bytes for the same seed. Never for secrets.
class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}
  void fill(std::span<uint8_t> bytes) override;

 private:
  std::mutex mutex_;
  std::mt19937_64 engine_;
};

// Uniform in [0, 1).
double uniform(RandomSource& random);

}  // namespace dex::base
