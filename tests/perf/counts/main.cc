// perf_counted: one part's work, for callgrind, which counts what happens inside dex_counted alone.
//   perf_counted --about          what this build is, and the parts, as JSON
//   perf_counted NAME MODEL_DIR   runs the part; "perf_counted: …" and 1 when it can't
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/perf/counts/counted.h"
#include "tests/support/sanitizer.h"

// By its plain name: callgrind's --toggle-collect. The barrier keeps it from being left by a jump.
extern "C" [[gnu::noinline]] void dex_counted(const std::function<void()>& work) {
  work();
  asm volatile("" ::: "memory");
}

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const auto parts = dex::perf::counted_parts(argc > 2 ? argv[2] : "");
  if (name == "--about") {
#ifdef __OPTIMIZE__
    const bool optimised = true;
#else
    const bool optimised = false;
#endif
    nlohmann::json about = {{"compiler", __VERSION__},
                            {"optimised", optimised},
                            {"sanitized", dex::support::kSanitized},
                            {"parts", nlohmann::json::array()}};
    for (const auto& [part, prepare] : parts) about["parts"].push_back(part);
    std::cout << about.dump() << std::endl;
    return 0;
  }
  const auto part = parts.find(name);
  if (argc != 3 || part == parts.end()) {
    std::cerr << "usage: perf_counted --about | NAME MODEL_DIR" << std::endl;
    return 2;
  }
  try {
    dex_counted(part->second());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "perf_counted: " << error.what() << std::endl;
    return 1;
  }
}
