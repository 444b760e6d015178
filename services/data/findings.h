#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dex::data {

enum class Severity { kError, kWarning, kInfo };
enum class Layer { kStructure, kTokens };
std::string_view name(Severity severity);  // "ERROR"
std::string_view name(Layer layer);        // "STRUCTURE"

// One thing that is wrong with, or worth knowing about, a data file (api.md §5).
struct Finding {
  int64_t line = 0;         // 1-based; 0: the file as a whole
  int64_t byte_offset = 0;  // of the fault in the file where known, else of its line
  std::string json_path;    // "$.messages[2].role"; empty where it has none
  std::string code;         // of api.md §5, e.g. "missing_key"
  Severity severity = Severity::kError;
  Layer layer = Layer::kStructure;
  std::string message;  // what was found and what was expected
  std::string hint;     // how to repair it, a command where there is one; may be empty
  std::string excerpt;  // the text around the fault, at most 120 characters
};

// Counts every finding and keeps the first `limit` of them; an error that finds the list full takes
// the place of the last warning, so that a million blank lines can't hide it. Memory is bounded by
// the limit. Not thread-safe.
class Findings {
 public:
  explicit Findings(size_t limit = 1000) : limit_(limit) {}

  // `build()` returns the Finding without code and severity; it runs only if the finding will be
  // kept.
  template <typename Build>
  void add(std::string_view code, Severity severity, Build&& build) {
    count(code, severity);
    if (!has_room(severity)) return;
    Finding finding = std::forward<Build>(build)();
    finding.code = code;
    finding.severity = severity;
    keep(std::move(finding));
  }

  // The kept ones, by line.
  std::vector<Finding> list() const;
  // At most `count`, errors before warnings before the rest, each by line.
  std::vector<Finding> first(size_t count) const;
  const std::map<std::string, int64_t, std::less<>>& counts() const {
    return counts_;
  }  // by code, exact
  int64_t errors() const { return errors_; }

 private:
  void count(std::string_view code, Severity severity);
  bool has_room(Severity severity) const;
  void keep(Finding finding);

  size_t limit_;
  std::vector<Finding> kept_;
  std::vector<size_t> kept_warnings_;  // indices in kept_ of those that are no errors
  std::map<std::string, int64_t, std::less<>> counts_;
  int64_t errors_ = 0;
};

// Text around `at` for an excerpt: at most 120 characters, valid UTF-8, control characters as
// spaces.
std::string excerpt(std::string_view line, size_t at);

}  // namespace dex::data
