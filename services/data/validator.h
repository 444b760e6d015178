#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/data/findings.h"
#include "services/data/limits.h"
#include "services/data/row.h"
#include "services/data/statistics.h"

namespace dex::data {

// What a whole file came to.
struct Report {
  bool ready = false;   // READY; else INVALID
  std::string message;  // of an INVALID file: why, in one sentence
  std::optional<text::RowFormat> format;
  std::string tokenizer_sha256;  // of a tokens file's header line, or empty
  Statistics statistics;
  std::vector<Finding> findings;        // at most Options::max_findings, by line
  std::vector<Finding> first_findings;  // 20, errors first
  std::map<std::string, int64_t, std::less<>> finding_counts;  // by code, exact
};

// Checks a data file while its bytes arrive: the structure layer of api.md §5. Reads to the end and
// reports every fault, unless the file as a whole is something else (compressed, UTF-16, one JSON
// array …). Memory is bounded by one line, the findings and the index of rows. Never blocks. Not
// thread-safe.
class Validator {
 public:
  struct Options {
    std::optional<text::RowFormat> format;  // absent: taken from the first good line
    double skip_budget_ratio = 0;           // 0–0.1; bad rows above it make the file INVALID
    size_t max_findings = 1000;
    bool find_duplicates = true;
    Limits limits;
    // Gets every good row, in order, during feed() and finish(). May be empty.
    std::function<void(Row)> on_row;
  };
  explicit Validator(Options options);
  ~Validator();

  // The next bytes, cut anywhere.
  void feed(std::string_view bytes);
  // The end of the file. Call once; afterwards the object is spent.
  Report finish();
  // True once nothing that follows can change the verdict INVALID: an upload may stop here.
  bool hopeless() const;

 private:
  struct State;  // the machinery, kept out of the header
  std::unique_ptr<State> state_;
};

}  // namespace dex::data
