#include "worker/model/adaptation.h"

#include <algorithm>
#include <utility>

namespace dex::model {

namespace {

std::string layer_prefix(size_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

// A trained fp32 copy of what the method trains of the base.
void copy_if_trained(Train train, const std::string& name, const at::Tensor& from, at::Tensor& to) {
  if (from.defined() && trains_weight(train, name))
    to = from.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

bool changes(LayerAdaptation layer) {  // of places; tensors are shared
  const auto places = layer_places(layer);
  const auto added = [&](Linear linear) { return layer.lora[linear].defined(); };
  return std::any_of(places.begin(), places.end(),
                     [](const auto& place) { return place.second->defined(); }) ||
         std::any_of(kLinears.begin(), kLinears.end(), added) ||
         layer.attention_adapter.defined() || layer.mlp_adapter.defined() ||
         (layer.mask.defined() && layer.mask.count_nonzero().item<int64_t>() > 0);
}

void replace(at::Tensor& weight, const at::Tensor& with) {
  if (with.defined()) weight = with;
}

}  // namespace

Weights replaced_weights(const Weights& base, const Adaptation& adaptation) {
  Weights out = base;
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    LayerWeights with = adaptation.layers[i];
    const auto to = layer_places(out.layers.at(i)), from = layer_places(with);
    for (size_t place = 0; place < to.size(); ++place)
      replace(*to[place].second, *from[place].second);
  }
  const bool tied = base.lm_head.is_same(base.embed);
  replace(out.embed, adaptation.embed);
  replace(out.norm, adaptation.norm);
  replace(out.lm_head, tied ? adaptation.embed : adaptation.lm_head);
  return out;
}

Adaptation initial_adaptation(const DexOptions& options, const Config& config, const Weights& base,
                              const std::vector<std::vector<int64_t>>& selected_heads,
                              uint64_t seed) {
  Adaptation adaptation;
  adaptation.options = options;
  adaptation.layers.resize(base.layers.size());
  for (size_t i = 0; i < base.layers.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    LayerAdaptation& layer = adaptation.layers[i];
    if (options.has_branch())
      layer.mask = layer_mask(options, config, number, selected_heads.at(i));
    if (number < options.first_layer) continue;
    LayerWeights of_base = base.layers[i];
    const auto from = layer_places(of_base), to = layer_places(layer);
    for (size_t place = 0; place < from.size(); ++place)
      copy_if_trained(options.train, from[place].first, *from[place].second, *to[place].second);
    if (options.has_branch()) layer.branch = initial_branch(options, config, number, seed);
    if (options.has_lora()) layer.lora = initial_lora(options.lora, config, number, seed);
    if (options.has_adapter() && options.adapter.after_attention())
      layer.attention_adapter = initial_adapter(options.adapter, config, number, 0, seed);
    if (options.has_adapter() && options.adapter.after_mlp())
      layer.mlp_adapter = initial_adapter(options.adapter, config, number, 1, seed);
  }
  copy_if_trained(options.train, "model.embed_tokens.weight", base.embed, adaptation.embed);
  copy_if_trained(options.train, "model.norm.weight", base.norm, adaptation.norm);
  if (!base.lm_head.is_same(base.embed))
    copy_if_trained(options.train, "lm_head.weight", base.lm_head, adaptation.lm_head);
  set_lambda(adaptation, 0);
  return adaptation;
}

void set_lambda(Adaptation& adaptation, int64_t t) {
  if (adaptation.options.has_second_map())
    adaptation.mix = mix_at(adaptation.options.second_map, t);
  if (!adaptation.options.has_branch()) return;
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool adapted = layer >= adaptation.options.first_layer;
    adaptation.layers[i].lambda =
        adapted ? lambda_terms(adaptation.options.lambda, layer, t) : LambdaTerms{};
  }
}

at::Tensor layer_mask(const DexOptions& options, const Config& config, int64_t layer,
                      const std::vector<int64_t>& selected_heads) {
  if (layer < options.first_layer) return head_mask({}, config.heads);
  return head_mask(selected_heads, config.heads, options.soft_floor);
}

int64_t first_changed_layer(const Adaptation& adaptation) {
  if (adaptation.embed.defined()) return 0;
  const auto found = std::find_if(adaptation.layers.begin(), adaptation.layers.end(), changes);
  return found - adaptation.layers.begin();
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
  std::array<std::vector<Trainable>, kGroups> groups;
  const auto add = [&](Group group, std::string name, at::Tensor& tensor) {
    if (tensor.defined())
      groups[static_cast<size_t>(group)].push_back({std::move(name), group, &tensor});
  };
  add(Group::kBase, "model.embed_tokens.weight", adaptation.embed);
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    LayerAdaptation& layer = adaptation.layers[i];
    const std::string prefix = layer_prefix(i);
    for (const auto& [name, place] : layer_places(layer)) add(Group::kBase, prefix + name, *place);
    for (const Linear linear : kLinears) {
      add(Group::kAdded, lora_key(static_cast<int64_t>(i), linear, 'A'), layer.lora[linear].a);
      add(Group::kAdded, lora_key(static_cast<int64_t>(i), linear, 'B'), layer.lora[linear].b);
    }
    for (const auto& [key, place] : adapter_places(layer.attention_adapter))
      add(Group::kAdded, prefix + "self_attn.adapter." + key, *place);
    for (const auto& [key, place] : adapter_places(layer.mlp_adapter))
      add(Group::kAdded, prefix + "mlp.adapter." + key, *place);
    for (const char* key : {"w_d", "w_down", "w_up", "gate"})
      add(Group::kBranch, prefix + "self_attn.dex." + key, branch_field(layer.branch, key));
    add(Group::kLambda, prefix + "self_attn.dex.lambda_learn", layer.branch.lambda_learn);
  }
  add(Group::kBase, "model.norm.weight", adaptation.norm);
  add(Group::kBase, "lm_head.weight", adaptation.lm_head);
  std::vector<Trainable> all;
  for (auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace dex::model
