#include "worker/model/dex_branch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <stdexcept>

#include "worker/kernels/dex_out.h"
#include "worker/model/random_start.h"

namespace dex::model {

namespace {

// The streams of initial_branch: one for each tensor of each layer, so that no option moves
// another's numbers.
constexpr uint64_t kBranchStreams = 0x64657800;  // "dex"
constexpr uint64_t kMapStream = 0, kDownStream = 1, kStreamsALayer = 2;

}  // namespace

std::vector<std::pair<std::string, std::vector<int64_t>>> branch_shapes(const DexOptions& options,
                                                                        const Config& config) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  if (!options.has_branch()) return shapes;
  const int64_t heads = config.heads, d = config.head_dim;
  switch (options.projection) {
    case Projection::kShared:
      shapes.push_back({"w_d", {d, d}});
      break;
    case Projection::kPerHead:
      shapes.push_back({"w_d", {heads, d, d}});
      break;
    case Projection::kBottleneck: {
      const int64_t m = bottleneck_width(options, config);
      const bool shared = options.bottleneck_scope == BottleneckScope::kShared;
      shapes.push_back(
          {"w_down", shared ? std::vector<int64_t>{d, m} : std::vector<int64_t>{heads, d, m}});
      shapes.push_back(
          {"w_up", shared ? std::vector<int64_t>{m, d} : std::vector<int64_t>{heads, m, d}});
      break;
    }
  }
  if (options.form == Form::kHeadMean) shapes.push_back({"gate", {heads}});
  if (options.learns_lambda()) shapes.push_back({"lambda_learn", {1}});
  return shapes;
}

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
  const double bound = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const uint64_t stream = kBranchStreams + static_cast<uint64_t>(layer) * kStreamsALayer;
  for (const auto& [key, shape] : branch_shapes(options, config)) {
    at::Tensor& field = branch_field(branch, key);
    if (key == "w_d" && options.w_d_init == BranchInit::kLinear) {
      field = random_start(shape, bound, seed, stream + kMapStream);
    } else if (key == "w_down") {
      field = random_start(shape, bound, seed, stream + kDownStream);
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

at::Tensor difference(const BranchTensors& branch, const at::Tensor& o) {
  return kernels::dex_difference(o, projection_map(branch), branch.gate);
}

at::Tensor head_mask(const std::vector<int64_t>& heads, int64_t head_count) {
  at::Tensor mask = at::zeros({head_count}, at::kFloat);
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
