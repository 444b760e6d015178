#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/store/store.h"

namespace dex::store {

// What tenants have used, by UTC day; kept for 400 days. Thread-safe; blocks like JobRepository.
class UsageRepository {
 public:
  explicit UsageRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Generated {  // as a gateway has counted it
    std::string tenant;
    int64_t prompt_tokens = 0, generated_tokens = 0, generations = 0;
  };
  // `report` names it: what is sent twice counts once. Counts as today's.
  base::Status add(const std::string& report, const std::vector<Generated>& rows);

  struct Day {
    int64_t day = 0;  // since 1970
    int64_t trained_tokens = 0, prompt_tokens = 0, generated_tokens = 0, generations = 0;
    double device_seconds = 0;  // devices × seconds of every attempt that ended on that day
  };
  // Of the last `count` (≤ 400) days, today included, those with any use; newest first.
  base::Result<std::vector<Day>> days(const std::string& tenant, int count);

 private:
  Store& store_;
};

}  // namespace dex::store
