#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/documents.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// How a model's attention heads look (method.md §4), on sequences cut from a text: a score a head,
// a number a pair of heads, their means by layer and over all. Every value is a mean over the
// sequences that have it (sparsity: over the entries of their maps), and intervals resample
// sequences. So CKA is the mean of each sequence's unbiased value, not that of all
// positions together (`dex-engine heads`), which no resample of sequences could give an interval; a
// note says n/d of the sequences, and warns below 10.
// Dims: layer, head; of pairs also other, head < other. Nothing of it is better or worse: a
// difference that is real is DIFFERENT.
// With sparsity come negative_share and negative_mass, and of an adapter whose branch has such
// directions directions_below_zero and directions_below_half (removed_directions.h; of one map over
// all heads without the dim head): functions of the adapter alone, so their intervals have no
// width. hessian_histogram: the share of a subject's sequences whose eigenvalue is in a range, dims
// from, to.
class HeadAnalysis final : public Task {
 public:
  struct Options {
    HeadQuestion question = {.entropy = true,
                             .importance = true,
                             .cosine = true,
                             .cka = true,
                             .sparsity = true};  // skip_rows as asked for
    int32_t sequences = 8, length = 512;
    uint64_t seed = 0;
  };
  // Throws std::runtime_error if nothing is asked for.
  HeadAnalysis(Options options, TextFile file);

  [[nodiscard]] std::string name() const override { return "head_analysis"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  using Sequences = std::vector<std::vector<int32_t>>;
  [[nodiscard]] Sequences sequences_for(const Subject& subject, const Hooks& hooks) const;
  // skip_rows as it can be used: lowered to 1, with normalized entropy, when no sequence is longer.
  [[nodiscard]] HeadQuestion question_for(const Sequences& sequences, const Hooks& hooks) const;

  Options options_;
  TextFile file_;
};

// The names by which metrics are asked for on a command line: entropy, importance, cosine_distance,
// cka, sparsity, hessian. Throws std::runtime_error for another.
void ask_for(const std::string& metric, HeadQuestion& question);
const std::vector<std::string>& head_metrics();

}  // namespace dex::evaluate
