#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/evaluate/result.h"

namespace dex::evaluate {

// The samples of one task that are kept for people to read (api.md, ListEvaluationSamples): at most
// kMost of a subject, a seeded draw that is the same for every subject, and of long texts the
// beginning and the end. A draw, because the first ones of a file are mostly of one kind.
class KeptSamples {
 public:
  static constexpr size_t kMost = 256;
  static constexpr size_t kLongestPrompt = 1000;   // bytes; so of an output
  static constexpr size_t kLongestExpected = 300;  // bytes
  // Of JSON. A sample that is longer (a file may name its groups as it likes) is left out, so that
  // a task's samples stay below 8 MiB.
  static constexpr size_t kLongestLine = 8000;

  explicit KeptSamples(uint64_t seed) : seed_(seed) {}
  // The first sample's subject is the baseline; each subject gives the same samples in one order.
  void add(const Sample& sample);
  // JSON Lines of sample_as_json(): subject by subject, each in the order of add(), with the
  // baseline's score where it has the same sample. Empty: there was none.
  [[nodiscard]] std::string lines() const;

 private:
  struct Subject {
    std::string label;
    size_t seen = 0;
    // By what the draw gives it, then by its place: the first kMost are those that are kept.
    std::map<std::pair<uint32_t, size_t>, Sample> kept;
  };
  [[nodiscard]] uint32_t rank_of(const Sample& sample) const;
  Subject& subject_of(const std::string& label);

  uint64_t seed_;
  std::vector<Subject> subjects_;
};

}  // namespace dex::evaluate
