#pragma once

#include <cstdint>
#include <string>

#include "services/base/sha256.h"

namespace dex::support {

// What the toy trainer (toy_trainer.cc) trains: a hash that each step extends, so that a run that
// left out, repeated or mixed up a step ends with other bytes. The state after `step` steps, made
// from nothing.
inline std::string toy_state(const std::string& job, int64_t step) {
  std::string state = base::sha256_hex("toy " + job);
  for (int64_t i = 1; i <= step; ++i) state = base::sha256_hex(state + " " + std::to_string(i));
  return state;
}

// One step further: toy_state(job, step) from toy_state(job, step - 1).
inline std::string toy_step(const std::string& state, int64_t step) {
  return base::sha256_hex(state + " " + std::to_string(step));
}

}  // namespace dex::support
