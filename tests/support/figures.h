#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/long_form.h"

namespace dex::support {

// Notes what a test measured, as a JSON line at the end of the file $DEX_FIGURES (unset: nowhere):
// figure("P3", "recovery_max_s", 2.1) writes {"promise":"P3","name":"recovery_max_s","value":2.1}.
// `promise` and `name` are plain words, the unit ends the name. Lines of several processes do not
// mix: each is one write to a file opened for appending.
inline void figure(const std::string& promise, const std::string& name, double value) {
  const char* path = std::getenv("DEX_FIGURES");
  if (path == nullptr || *path == '\0') return;
  std::FILE* file = std::fopen(path, "ae");
  if (file == nullptr) return;
  std::fprintf(file, "{\"promise\":\"%s\",\"name\":\"%s\",\"value\":%.6g}\n", promise.c_str(),
               name.c_str(), value);
  std::fclose(file);
}

}  // namespace dex::support
