#include "worker/model/dex_branch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <stdexcept>

#include "worker/kernels/dex_out.h"
#include "worker/kernels/dex_out_mean.h"
#include "worker/kernels/head_map.h"
#include "worker/kernels/running_mean.h"
#include "worker/model/random_start.h"

namespace dex::model {

namespace {

// The streams of initial_branch: one for each tensor of each layer, so that no option moves
// another's numbers.
constexpr uint64_t kBranchStreams = 0x64657800;  // "dex"
constexpr uint64_t kMapStream = 0, kDownStream = 1, kStreamsALayer = 2;
constexpr uint64_t kUpStreams = kBranchStreams + (uint64_t{1} << 32);

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
  }
  return x;
}

// P(O) [N, H, d] of §3.2.
at::Tensor projected(const DexOptions& options, const BranchTensors& branch, const at::Tensor& o) {
  if (options.is_linear()) return kernels::times_map(o, projection_map(branch));
  const Activation act = options.bottleneck_activation;
  if (options.bottleneck_scope == BottleneckScope::kPerHead) {
    const at::Tensor inner = activated(at::matmul(o.transpose(0, 1), branch.w_down), act);
    return at::matmul(inner, branch.w_up).transpose(0, 1);
  }
  const at::Tensor rows =
      o.reshape({-1, branch.w_down.size(0)});  // a head's, or for dense a token's
  return activated(rows.mm(branch.w_down), act).mm(branch.w_up).view(o.sizes());
}

double start_bound(int64_t width) {
  return 1.0 / std::sqrt(static_cast<double>(width));
}

}  // namespace

const at::Tensor& branch_field(const BranchTensors& branch, const std::string& key) {
  if (key == "w_d") return branch.w_d;
  if (key == "w_down") return branch.w_down;
  if (key == "w_up") return branch.w_up;
  if (key == "gate") return branch.gate;
  if (key == "lambda_learn") return branch.lambda_learn;
  throw std::runtime_error("[dex_branch] key must be a branch tensor's, got \"" + key + "\"");
}

at::Tensor& branch_field(BranchTensors& branch, const std::string& key) {
  return const_cast<at::Tensor&>(branch_field(static_cast<const BranchTensors&>(branch), key));
}

BranchTensors initial_branch(const DexOptions& options, const Config& config, int64_t layer,
                             uint64_t seed) {
  BranchTensors branch;
  const bool literal = options.start == Start::kLiteral;
  const double bound = start_bound(projected_width(options, config));
  const auto index = static_cast<uint64_t>(layer);
  const uint64_t stream = kBranchStreams + index * kStreamsALayer;
  for (const auto& [key, shape] : branch_shapes(options, config)) {
    at::Tensor& field = branch_field(branch, key);
    if (key == "w_d" && (literal || options.w_d_init == BranchInit::kLinear)) {
      field = random_start(shape, bound, seed, stream + kMapStream);
    } else if (key == "w_down") {
      field = random_start(shape, bound, seed, stream + kDownStream);
    } else if (key == "w_up" && literal) {
      const double up_bound = start_bound(bottleneck_width(options, config));
      field = random_start(shape, up_bound, seed, kUpStreams + index);
    } else if (key == "gate" && literal) {
      field = at::full(shape, 1.0, at::kFloat);
    } else if (key == "lambda_learn") {
      field = at::full(shape, options.lambda.learn_init, at::kFloat);
    } else {
      field = at::zeros(shape, at::kFloat);
    }
  }
  return branch;
}

at::Tensor projection_map(const BranchTensors& branch) {
  return branch.w_d.defined() ? branch.w_d : at::matmul(branch.w_down, branch.w_up);
}

at::Tensor difference(const DexOptions& options, const BranchTensors& branch,
                      const BranchInput& in) {
  if (options.form == Form::kUniformMap) {
    return kernels::mean_difference(in.o, in.v, {}, branch.gate, in.bounds);
  }
  const at::Tensor p = projected(options, branch, in.o);
  if (!options.has_gate()) return p;
  const at::Tensor mean =
      options.form == Form::kHeadMean ? in.o.mean(1, true) : kernels::running_mean(in.o, in.bounds);
  return p - mean * branch.gate.view({1, -1, 1});
}

at::Tensor branched_output(const DexOptions& options, const BranchTensors& branch,
                           const BranchInput& in, const at::Tensor& w_o, const at::Tensor& lambda,
                           const at::Tensor& mask) {
  const double sign = options.sign_value();
  const std::vector<int64_t> flat{in.o.size(0), in.o.size(1) * in.o.size(2)};
  if (!options.is_linear()) {
    const at::Tensor strength = kernels::branch_strength(lambda, mask, sign);
    return (in.o + difference(options, branch, in) * strength).reshape(flat).mm(w_o.t());
  }
  const at::Tensor o = in.o.reshape(flat);
  switch (options.form) {
    case Form::kUniformMap:
      return kernels::dex_out_mean(o, in.v, w_o, {}, branch.gate, lambda, mask, sign, in.bounds);
    case Form::kPrefixMean:
      return kernels::dex_out_mean(o, {}, w_o, projection_map(branch), branch.gate, lambda, mask,
                                   sign, in.bounds);
    default:
      return kernels::dex_out(o, w_o, projection_map(branch), branch.gate, lambda, mask, sign);
  }
}

at::Tensor head_mask(const std::vector<int64_t>& heads, int64_t head_count, double floor) {
  at::Tensor mask = at::full({head_count}, floor, at::kFloat);
  auto* data = mask.mutable_data_ptr<float>();
  for (const int64_t head : heads) {
    if (head < 0 || head >= head_count) {
      throw std::runtime_error("[head_mask] head must be in 0…" + std::to_string(head_count - 1) +
                               ", got " + std::to_string(head));
    }
    data[head] = 1;
  }
  return mask;
}

}  // namespace dex::model
