#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "services/base/clock.h"
#include "services/base/random.h"

namespace dex::base {

// ULIDs as api.md §1 wants them: 26 lower-case characters of Crockford's base 32, 48 bits of
// milliseconds and 80 random bits. Two calls of one generator always grow, also within a
// millisecond and when the clock steps back. Thread-safe.
class UlidGenerator {
 public:
  UlidGenerator(const Clock& clock, RandomSource& random);  // both outlive this object
  std::string next();
  // make("ftjob-") → "ftjob-01jd…". Prefixes in use: file- ftjob- ftckpt- eval- heads- probe-
  // import- export- key-.
  std::string make(std::string_view prefix);

 private:
  const Clock& clock_;
  RandomSource& random_;
  std::mutex mutex_;
  int64_t last_ms_ = -1;
  uint16_t high_ = 0;  // the upper 16 of the 80 random bits
  uint64_t low_ = 0;
};

bool is_ulid(std::string_view text);
// is_id("ftjob-01jd…", "ftjob-"): that prefix and a ULID, nothing else. Such an id is safe in a
// path.
bool is_id(std::string_view id, std::string_view prefix);
// The name of a base model in models.json, [a-z0-9][a-z0-9.-]{0,63}: it becomes a label and part of
// adapter ids.
bool is_model_name(std::string_view name);
// Milliseconds stored in a ULID; only after is_ulid().
int64_t ulid_time_ms(std::string_view ulid);

}  // namespace dex::base
