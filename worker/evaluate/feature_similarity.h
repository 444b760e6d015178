#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/evaluate/head_selection.h"

namespace dex::evaluate {

// Linear CKA between the features X_h = (A·V)_h [n, d] of a layer's heads, n token positions over
// all documents (method.md §4.4): ‖X_gᵀX_h‖_F² / (‖X_gᵀX_g‖_F·‖X_hᵀX_h‖_F), columns centred. 1: the
// same features up to rotation and scale. Biased upwards for small n; the unbiased variant takes
// HSIC1 for each of the three terms and may be negative.
// Streamed: sums over positions only, all in fp64, (H·d)² + H·(H·d) numbers a layer. No n×n matrix
// is made for HSIC1 either: with k_i = ‖x_i‖², l_i = ‖y_i‖² and m the sums of the rows,
//   tr(KL)  = ‖XᵀY‖² − Σ k_i l_i
//   ΣK      = ‖m_x‖² − Σ k_i
//   1ᵀKL1   = m_xᵀ(XᵀY)m_y − m_x·Σ x_i l_i − m_y·Σ y_i k_i + Σ k_i l_i      (zero diagonals)
// Not thread-safe.
class FeatureSimilarity {
 public:
  FeatureSimilarity(int64_t layers, int64_t heads, int64_t head_dim);

  void add(int64_t layer, const at::Tensor& o);  // [N, H, d], as the Observer's on_heads gives it

  struct Result {
    std::vector<HeadTable> pairs, unbiased_pairs;  // [L][H][H]; NaN where not defined
    std::vector<double> mean, unbiased_mean;       // [L], over the pairs h < g
    int64_t positions = 0;                         // n
    double positions_per_dimension = 0;            // n/d: below 10 the biased values mean little
  };
  // Throws std::runtime_error if a layer has seen no position.
  Result result() const;

  // What the biased values of a layer are made of: m = Σ o [H·d], and S − mᵀm/n [H·d, H·d], whose
  // d×d blocks are the centred X_gᵀX_h.
  struct Moments {
    at::Tensor sums, centred;
  };
  Moments moments(int64_t layer) const;

 private:
  struct Sums {
    at::Tensor products;       // [H·d, H·d]: S = Σ oᵀo
    at::Tensor rows;           // [H·d]: m = Σ o
    at::Tensor rows_by_norm;   // [H·d, H]: Σ_i o_i·‖o_i,h‖²
    at::Tensor norm_products;  // [H, H]: Σ_i ‖o_i,g‖²·‖o_i,h‖²
    int64_t positions = 0;
  };
  static at::Tensor centred(const Sums& sums);  // [H·d, H·d]
  at::Tensor biased(const Sums& sums) const;    // [H, H]
  at::Tensor unbiased(const Sums& sums) const;  // [H, H]

  int64_t heads_, head_dim_;
  std::vector<Sums> layers_;
};

}  // namespace dex::evaluate
