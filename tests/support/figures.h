#pragma once

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "tests/support/long_form.h"

namespace dex::support {

// Notes what a test measured, as a JSON line at the end of the file $DEX_FIGURES (unset: nowhere):
// figure("P3", "recovery_max_s", 2.1) writes {"promise":"P3","name":"recovery_max_s","value":2.1,
// "date":"2026-11-30","commit":"26473c6"}: the day (UTC), and of what, as $DEX_FIGURES_COMMIT says.
// `promise` and `name` are plain words, the unit ends the name. Lines of several processes do not
// mix: each is one write to a file opened for appending.
inline void figure(const std::string& promise, const std::string& name, double value) {
  const char* path = std::getenv("DEX_FIGURES");
  if (path == nullptr || *path == '\0') return;
  std::FILE* file = std::fopen(path, "ae");
  if (file == nullptr) return;
  const char* commit = std::getenv("DEX_FIGURES_COMMIT");
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  std::fprintf(file,
               "{\"promise\":\"%s\",\"name\":\"%s\",\"value\":%.6g,"
               "\"date\":\"%04d-%02d-%02d\",\"commit\":\"%s\"}\n",
               promise.c_str(), name.c_str(), value, day.tm_year + 1900, day.tm_mon + 1,
               day.tm_mday, commit == nullptr ? "" : commit);
  std::fclose(file);
}

}  // namespace dex::support
