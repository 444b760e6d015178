#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace dex::evaluate {

struct HessianOptions {
  double epsilon = 0.01;    // of the first difference, along a unit vector
  double agreement = 0.02;  // two differences, ε and ε/2, must give the same value to this share
  double tolerance = 1e-4;  // the iteration ends when the value moves by less than this share
  int max_iterations = 20;  // for each ε
  uint64_t seed = 0;        // of the first vector
};

struct HessianEigenvalue {
  double value = 0;        // v·Hv: the eigenvalue of largest modulus, with its sign
  double epsilon = 0;      // with which it was found
  int iterations = 0;      // Hessian products, over all ε
  bool converged = false;  // within the tolerance, and ε and ε/2 agree
};

// The dominant eigenvalue of a loss's Hessian at θ by power iteration, v ← Hv/‖Hv‖, method.md §4.6.
// Only gradients are asked for: Hv = (∇L(θ+εv) − ∇L(θ−εv))/2ε, exact on a quadratic and a
// third-order error elsewhere, so ε is halved (six times at most) until halving it no longer
// changes the value.
//   gradient: ∇L at any θ, flat, of θ's shape [M] and type; called twice a product
// 0 where the gradient does not change. Throws std::runtime_error if a gradient is not finite.
// Eigenvalues λ and −λ of the same modulus do not converge; the result says so.
HessianEigenvalue dominant_hessian_eigenvalue(
    const std::function<at::Tensor(const at::Tensor& theta)>& gradient, const at::Tensor& theta,
    const HessianOptions& options = {});

}  // namespace dex::evaluate
