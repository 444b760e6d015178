#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/documents.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Perplexity over a sliding window (method.md §9.1), with loss in nats a token and bits a byte. The
// documents are joined by a blank line and tokenised once; every token but the first is scored once
// (behind BOS, where the model has one, that is every token of the text). Bytes are those of the
// tokens that are scored.
//
// Intervals resample documents. A raw file knows none: there the unit is a block of kBlockTokens
// tokens in a row, because neighbouring tokens are alike and single ones would make the interval
// too narrow.
class Perplexity final : public Task {
 public:
  static constexpr int32_t kBlockTokens = 256;
  struct Options {
    int32_t context_length = 0;  // 0: min(2048, the trained context)
    int32_t stride = 0;          // 0: half of it
    int64_t max_tokens = 200'000;
    // Rows for each value too: "tag", "language", "length_bucket", which is how many of a
    // document's tokens are scored: "1-63", "64-127", "128-255" …
    std::vector<std::string> group_by;
    bool allow_extrapolation = false;
  };
  Perplexity(Options options, TextFile file);

  [[nodiscard]] std::string name() const override { return "perplexity"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  struct Unit;
  struct Reading;
  [[nodiscard]] int32_t width_for(const Subject& subject) const;
  [[nodiscard]] Dims dims_of(const TextDocument& document, int32_t tokens) const;
  [[nodiscard]] std::vector<Unit> units_of(const std::vector<uint32_t>& starts, size_t bytes,
                                           int32_t bos) const;
  [[nodiscard]] Reading reading_of(const Subject& subject) const;
  void observe(const Subject& subject, const Hooks& hooks, const Unit& unit, int64_t item,
               double nll, std::vector<Observation>& out) const;

  Options options_;
  TextFile file_;
  std::string text_;
  std::vector<size_t> begins_;  // byte of text_ where each document begins
};

}  // namespace dex::evaluate
