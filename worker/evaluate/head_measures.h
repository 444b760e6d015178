#pragma once

#include <cstdint>
#include <optional>
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
// defined.
struct HeadMeasures {
  HeadTable entropy, importance;      // [L][H]
  std::vector<HeadTable> cosine;      // [L][H][H]
  std::vector<HeadTable> cka;         // [L][H][H], the unbiased variant of method.md §4.4
  HeadTable sparsity, negative_mass;  // [L][H], shares of the map's entries, of Σ|M|
  std::optional<double> hessian;      // dominant eigenvalue of the document's mean loss
};

}  // namespace dex::evaluate
