#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/head_selection.h"

// What is asked of a model's heads and answered, for one document: plain numbers, so that tasks
// need no tensor.
namespace dex::evaluate {

struct HeadQuestion {
  bool entropy = false, importance = false, cosine = false, cka = false, sparsity = false,
       hessian = false;
  int32_t skip_rows = 32;  // i_min of method.md §4.1, ≥ 1; entropy and cosine need longer documents
  bool normalized = false;  // entropy as H/ln(i+1)
};

// Only what was asked for is filled; pairs are 1 − cosine or CKA of heads h and g, NaN where not
// defined. H: the heads that have a map and an output each (model::Config::output_heads).
struct HeadMeasures {
  HeadTable entropy, importance;       // [L][H]
  bool entropy_of_magnitudes = false;  // of signed maps, as in HeadScores
  std::vector<HeadTable> cosine;       // [L][H][H]
  std::vector<HeadTable> cka;          // [L][H][H], the unbiased variant of §4.4
  double positions_per_dimension = 0;  // n/d of cka: the document's tokens, a head's width
  HeadTable sparsity, negative_share, negative_mass;  // [L][H]: MapSparsity::Result
  // With sparsity, of a branch that has such directions, RemovedTable: [L][H], or [L][1] of one map
  // over all heads; NaN where no branch acts. Else empty.
  HeadTable removed_below_zero, removed_below_half;
  bool removed_by_layer = false;
  std::optional<double> hessian;  // dominant eigenvalue of the document's mean loss
  bool hessian_settled = true;    // within its tolerance; else where the iteration stopped
};

// Ranges of the histogram of eigenvalues over documents (method.md §4.6).
inline constexpr int32_t kEigenvalueBins = 10;

// n/d below which CKA means little (method.md §4.4): the biased one is too high, of a single
// document the unbiased one is noise.
inline constexpr double kFewPositions = 10;

// What is said beside such numbers.
inline constexpr const char* kSignedEntropyNote =
    "the maps are signed and have no entropy: what is shown as entropy is that of |M|, each row "
    "divided by its sum (|M| renormalised)";
inline std::string unsettled_note(int64_t left, int64_t all) {
  return std::to_string(left) + " of " + std::to_string(all) +
         " Hessian eigenvalues did not settle: they are where the iteration stopped";
}

}  // namespace dex::evaluate
