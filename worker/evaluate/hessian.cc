#include "worker/evaluate/hessian.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "worker/kernels/philox.h"

namespace dex::evaluate {
namespace {

using Gradient = std::function<at::Tensor(const at::Tensor&)>;

constexpr int kMaxHalvings = 6;
constexpr uint64_t kVectorStream = 0x68657373;  // "hess"

at::Tensor random_unit_vector(const at::Tensor& like, uint64_t seed) {
  at::Tensor v = at::empty(like.sizes(), at::kDouble);
  auto* values = v.mutable_data_ptr<double>();
  for (int64_t i = 0; i < v.numel(); ++i)
    values[i] = 2 * kernels::random_unit(seed, kVectorStream, static_cast<uint64_t>(i)) - 1;
  return (v / v.norm()).to(like.scalar_type());
}

double inner_product(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>();
}

at::Tensor product(const Gradient& gradient, const at::Tensor& theta, const at::Tensor& v,
                   double epsilon) {
  const at::Tensor step = v * epsilon;
  const at::Tensor difference = gradient(theta + step) - gradient(theta - step);
  if (!at::isfinite(difference).all().item<bool>())
    throw std::runtime_error("[hessian] the gradient is not finite near these parameters");
  return difference / (2 * epsilon);
}

}  // namespace

HessianEigenvalue dominant_hessian_eigenvalue(const Gradient& gradient, const at::Tensor& theta,
                                              const HessianOptions& options) {
  HessianEigenvalue out;
  at::Tensor next = random_unit_vector(theta, options.seed), v;
  double epsilon = options.epsilon;
  for (int halving = 0; halving <= kMaxHalvings; ++halving, epsilon /= 2) {
    out.epsilon = epsilon;
    bool settled = false;
    for (int i = 0; i < options.max_iterations && !settled; ++i) {
      v = next;
      const at::Tensor hv = product(gradient, theta, v, epsilon);
      ++out.iterations;
      const double value = inner_product(v, hv), norm = std::sqrt(inner_product(hv, hv));
      settled = i > 0 && std::abs(value - out.value) <= options.tolerance * std::abs(value);
      out.value = value;
      if (norm == 0) return {0, epsilon, out.iterations, true};
      next = hv / norm;
    }
    // Along the vector found, not along a random one: there v·Hv may be near 0 by cancellation.
    const double finer = inner_product(v, product(gradient, theta, v, epsilon / 2));
    ++out.iterations;
    if (std::abs(finer - out.value) <= options.agreement * std::abs(finer)) {
      out.converged = settled;
      return out;
    }
  }
  return out;
}

}  // namespace dex::evaluate
