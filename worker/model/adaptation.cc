#include "worker/model/adaptation.h"

#include <utility>

namespace dex::model {

namespace {

at::Tensor trained_copy(const at::Tensor& weight) {
  return weight.defined() ? weight.to(at::kFloat, false, /*copy=*/true) : at::Tensor();
}

}  // namespace

Adaptation initial_adaptation(const DexOptions& options, const Config& config, const Weights& base,
                              const std::vector<std::vector<int64_t>>& selected_heads,
                              uint64_t seed) {
  Adaptation adaptation;
  adaptation.options = options;
  adaptation.layers.resize(base.layers.size());
  for (size_t i = 0; i < base.layers.size(); ++i) {
    LayerAdaptation& layer = adaptation.layers[i];
    if (options.trains_kvo()) {
      const LayerWeights& from = base.layers[i];
      layer.k = trained_copy(from.k);
      layer.v = trained_copy(from.v);
      layer.o = trained_copy(from.o);
      layer.k_bias = trained_copy(from.k_bias);
      layer.v_bias = trained_copy(from.v_bias);
      layer.o_bias = trained_copy(from.o_bias);
    }
    if (options.has_branch()) {
      layer.branch = initial_branch(options, config, static_cast<int64_t>(i), seed);
      layer.mask = head_mask(selected_heads.at(i), config.heads, options.soft_floor);
    }
  }
  set_lambda(adaptation, 0);
  return adaptation;
}

void set_lambda(Adaptation& adaptation, int64_t t) {
  if (!adaptation.options.has_branch()) return;
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    adaptation.layers[i].lambda =
        lambda_terms(adaptation.options.lambda, static_cast<int64_t>(i), t);
  }
}

std::vector<double> lambda_values(const Adaptation& adaptation) {
  std::vector<double> values;
  for (const LayerAdaptation& layer : adaptation.layers) {
    const at::Tensor& learned = layer.branch.lambda_learn;
    values.push_back(layer.lambda.at(learned.defined() ? learned.item<double>() : 0.0));
  }
  return values;
}

std::vector<Trainable> trainables(Adaptation& adaptation) {
  std::vector<Trainable> projections, branches, lambdas;
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    LayerAdaptation& layer = adaptation.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i) + ".self_attn.";
    const auto add = [](std::vector<Trainable>& list, std::string name, Group group,
                        at::Tensor& tensor) {
      if (tensor.defined()) list.push_back({std::move(name), group, &tensor});
    };
    if (adaptation.options.trains_kvo()) {
      add(projections, prefix + "k_proj.weight", Group::kBase, layer.k);
      add(projections, prefix + "v_proj.weight", Group::kBase, layer.v);
      add(projections, prefix + "o_proj.weight", Group::kBase, layer.o);
      add(projections, prefix + "k_proj.bias", Group::kBase, layer.k_bias);
      add(projections, prefix + "v_proj.bias", Group::kBase, layer.v_bias);
      add(projections, prefix + "o_proj.bias", Group::kBase, layer.o_bias);
    }
    for (const char* key : {"w_d", "w_down", "w_up", "gate"}) {
      add(branches, prefix + "dex." + key, Group::kBranch, branch_field(layer.branch, key));
    }
    add(lambdas, prefix + "dex.lambda_learn", Group::kLambda, layer.branch.lambda_learn);
  }
  projections.insert(projections.end(), branches.begin(), branches.end());
  projections.insert(projections.end(), lambdas.begin(), lambdas.end());
  return projections;
}

}  // namespace dex::model
