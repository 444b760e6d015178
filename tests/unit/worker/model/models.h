#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"
#include "worker/model/adaptation.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

// A tiny random Llama in any type, and adaptations of it that are not at their start.
namespace dex::testing {

inline model::Config tiny_config() {
  model::Config c;
  c.model_type = "llama";
  c.vocab_size = 61;
  c.hidden_size = 20;
  c.intermediate_size = 28;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.max_position_embeddings = 64;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 10000;
  c.tie_word_embeddings = true;
  return c;
}

inline model::Weights tiny_weights(const model::Config& c, at::ScalarType type = at::kFloat) {
  uint64_t stream = 100;
  const auto matrix = [&](int64_t out, int64_t in) {
    return random_tensor({out, in}, ++stream, type) * 0.4;
  };
  const auto norm = [&] { return random_tensor({c.hidden_size}, ++stream, type) * 0.2 + 1; };
  model::Weights w;
  w.embed = matrix(c.vocab_size, c.hidden_size);
  for (int64_t i = 0; i < c.layers; ++i) {
    model::LayerWeights& l = w.layers.emplace_back();
    l.input_norm = norm();
    l.q = matrix(c.heads * c.head_dim, c.hidden_size);
    l.k = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    l.v = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    l.o = matrix(c.hidden_size, c.heads * c.head_dim);
    l.post_norm = norm();
    l.gate = matrix(c.intermediate_size, c.hidden_size);
    l.up = matrix(c.intermediate_size, c.hidden_size);
    l.down = matrix(c.hidden_size, c.intermediate_size);
  }
  w.norm = norm();
  w.lm_head = w.embed;
  return w;
}

// One option of method.md §3.1 and §3.2, with the form's own sign and a λ that is not 0 at t = 30.
inline model::DexOptions option(model::Form form, model::Projection projection) {
  const bool minus = form == model::Form::kPaper || form == model::Form::kUniformMap;
  model::DexOptions o;
  o.form = form;
  o.projection = projection;
  o.sign = minus ? model::Sign::kMinus : model::Sign::kPlus;
  o.lambda.anneal_steps = 50;
  if (!minus) {
    o.lambda.schedule = model::Schedule::kSeedCosine;
    o.lambda.start = 0.1;
    o.lambda.end = 0.5;
  }
  return o;
}

// Every form with every projection, scope and activation; head_mean over a dense map is resolved
// away before it comes here, and uniform_map has no projection.
inline std::vector<model::DexOptions> all_options() {
  using model::Activation, model::BottleneckScope, model::Form, model::Projection;
  std::vector<model::DexOptions> list;
  for (const auto form : {Form::kPaper, Form::kHeadMean, Form::kPrefixMean}) {
    list.push_back(option(form, Projection::kShared));
    list.push_back(option(form, Projection::kPerHead));
    if (form != Form::kHeadMean) list.push_back(option(form, Projection::kDense));
    for (const auto scope :
         {BottleneckScope::kShared, BottleneckScope::kPerHead, BottleneckScope::kDense}) {
      for (const auto act : {Activation::kNone, Activation::kSilu, Activation::kGelu}) {
        list.push_back(option(form, Projection::kBottleneck));
        list.back().bottleneck_scope = scope;
        list.back().bottleneck_activation = act;
      }
    }
  }
  list.push_back(option(Form::kUniformMap, Projection::kShared));
  return list;
}

inline std::vector<model::DexOptions> foldable_options() {
  std::vector<model::DexOptions> list = all_options();
  std::erase_if(list, [](const auto& o) { return !model::not_foldable(o).empty(); });
  return list;
}

inline std::string label(const model::DexOptions& o) {
  std::string text(name(o.form));
  if (!o.has_projection()) return text;
  text += "_" + std::string(name(o.projection));
  if (o.projection != model::Projection::kBottleneck) return text;
  return text + "_" + std::string(name(o.bottleneck_scope)) + "_" +
         std::string(name(o.bottleneck_activation));
}

inline std::vector<std::vector<int64_t>> some_heads(const model::Config& c) {
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(c.layers));
  for (size_t i = 0; i < heads.size(); ++i) {
    if (i % 3 == 0) heads[i] = {1, c.heads - 1};
    if (i % 3 == 1) heads[i] = {0};  // i % 3 == 2: a layer without a branch
  }
  return heads;
}

// An adaptation in the middle of training: every tensor random, λ that of t = 30.
inline model::Adaptation moved_adaptation(const model::DexOptions& options, const model::Config& c,
                                          const model::Weights& base, double size = 0.3) {
  model::Adaptation a = initial_adaptation(options, c, base, some_heads(c), 5);
  uint64_t stream = 500;
  for (const model::Trainable& entry : trainables(a)) {
    *entry.tensor = *entry.tensor + random_tensor(entry.tensor->sizes(), ++stream) *
                                        (entry.group == model::Group::kBase ? size * 0.1 : size);
  }
  set_lambda(a, 30);
  return a;
}

}  // namespace dex::testing
