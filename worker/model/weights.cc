#include "worker/model/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <string_view>

#include "worker/kernels/check.h"
#include "worker/model/differential_attention.h"
#include "worker/model/safetensors.h"

namespace dex::model {

namespace {

using Visit = std::function<void(const std::string& name, const std::vector<int64_t>& shape,
                                 at::Tensor& tensor)>;

// Whose tensors a walk visits: a model's, or every one that some model has.
struct Walk {
  const Config& config;
  bool every = false;
  [[nodiscard]] bool has(bool of_config) const { return every || of_config; }
  [[nodiscard]] bool has(Attention attention) const {
    return every || config.attention == attention;
  }
};

// The one list of names, shapes and places: loading and listing both walk it.
void visit_layer(const Walk& walk, const std::string& prefix, LayerWeights& layer,
                 const Visit& visit) {
  const Config& c = walk.config;
  const int64_t D = c.hidden_size, F = c.intermediate_size, d = c.head_dim, o = c.heads * d,
                q = c.query_heads() * d, k = c.key_heads() * d, v = c.kv_heads * d;
  visit(prefix + "input_layernorm.weight", {D}, layer.input_norm);
  visit(prefix + "self_attn.q_proj.weight", {q, D}, layer.q);
  visit(prefix + "self_attn.k_proj.weight", {k, D}, layer.k);
  visit(prefix + "self_attn.v_proj.weight", {v, D}, layer.v);
  visit(prefix + "self_attn.o_proj.weight", {D, o}, layer.o);
  if (walk.has(c.qkv_bias)) {
    visit(prefix + "self_attn.q_proj.bias", {q}, layer.q_bias);
    visit(prefix + "self_attn.k_proj.bias", {k}, layer.k_bias);
    visit(prefix + "self_attn.v_proj.bias", {v}, layer.v_bias);
  }
  if (walk.has(c.o_bias)) visit(prefix + "self_attn.o_proj.bias", {D}, layer.o_bias);
  if (walk.has(c.qk_norm)) {
    visit(prefix + "self_attn.q_norm.weight", {d}, layer.q_norm);
    visit(prefix + "self_attn.k_norm.weight", {d}, layer.k_norm);
  }
  if (walk.has(Attention::kDiffLlama) || walk.has(Attention::kSecondMapV1)) {
    visit(prefix + "self_attn.lambda_q1", {d}, layer.lambda_q1);
    visit(prefix + "self_attn.lambda_k1", {d}, layer.lambda_k1);
    visit(prefix + "self_attn.lambda_q2", {d}, layer.lambda_q2);
    visit(prefix + "self_attn.lambda_k2", {d}, layer.lambda_k2);
  }
  if (walk.has(Attention::kSecondMapV2))
    visit(prefix + "self_attn.lambda_proj.weight", {c.heads, D}, layer.lambda_proj);
  visit(prefix + "post_attention_layernorm.weight", {D}, layer.post_norm);
  visit(prefix + "mlp.gate_proj.weight", {F, D}, layer.gate);
  visit(prefix + "mlp.up_proj.weight", {F, D}, layer.up);
  visit(prefix + "mlp.down_proj.weight", {D, F}, layer.down);
  if (walk.has(c.mlp_bias)) {
    visit(prefix + "mlp.gate_proj.bias", {F}, layer.gate_bias);
    visit(prefix + "mlp.up_proj.bias", {F}, layer.up_bias);
    visit(prefix + "mlp.down_proj.bias", {D}, layer.down_bias);
  }
}

void visit_all(const Walk& walk, Weights& weights, const Visit& visit) {
  const Config& c = walk.config;
  weights.layers.resize(static_cast<size_t>(c.layers));
  visit("model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, weights.embed);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    visit_layer(walk, "model.layers." + std::to_string(i) + ".", weights.layers[i], visit);
  }
  visit("model.norm.weight", {c.hidden_size}, weights.norm);
  if (!c.tie_word_embeddings)
    visit("lm_head.weight", {c.vocab_size, c.hidden_size}, weights.lm_head);
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("[weights] " + what);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

// Ends a message about a tensor that config.json and the weights disagree on.
std::string of_config(const Config& config) {
  return "; config.json says " + config.kind() + " of " + std::to_string(config.layers) +
         " layers: take it and the weights from one model";
}

at::Tensor checked(const WeightFiles& files, const Config& config, const std::string& name,
                   const std::vector<int64_t>& shape) {
  if (!files.has(name)) {
    fail("expected tensor \"" + name + "\" " + shape_text(shape) + ", found none" +
         of_config(config));
  }
  const TensorInfo& info = files.info(name);
  if (info.shape != shape) {
    fail("tensor \"" + name + "\": expected shape " + shape_text(shape) + ", found " +
         shape_text(info.shape));
  }
  if (info.dtype != at::kFloat && info.dtype != at::kBFloat16 && info.dtype != at::kHalf &&
      info.dtype != at::kDouble) {
    fail("tensor \"" + name + "\": expected a floating-point type, found " +
         c10::toString(info.dtype));
  }
  return files.tensor(name);
}

// Where unilm keeps the tensor of that name.
std::string unilm_name(const std::string& name) {
  constexpr std::string_view kHere = "self_attn.o_proj.weight",
                             kThere = "self_attn.out_proj.weight";
  if (!name.ends_with(kHere)) return name;
  return name.substr(0, name.size() - kHere.size()) + std::string(kThere);
}

// Attention as it was stored → DiffLlama's, with the gain of each layer's head norm inside.
void leave_unilm_layout(const WeightFiles& files, const Config& config,
                        const WeightOptions& options, Weights& weights,
                        std::set<std::string>& used) {
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    LayerWeights& layer = weights.layers[i];
    const std::string name = "model.layers." + std::to_string(i) + ".self_attn.subln.weight";
    used.insert(name);
    const at::Tensor gain = checked(files, config, name, {2 * config.head_dim});
    if (options.refuse_non_finite) require_finite(gain, name);
    const DifferentialProjections here =
        from_unilm({layer.q, layer.k, layer.v, layer.o}, gain.to(layer.o.scalar_type()),
                   config.heads / 2, config.kv_heads / 2);
    layer.q = here.q;
    layer.k = here.k;
    layer.v = here.v;
    layer.o = here.o;
  }
}

// A tied head may be stored once more; then it must be the embedding.
void check_extra(const WeightFiles& files, const Config& config,
                 const std::set<std::string>& used) {
  for (const std::string& name : files.names()) {
    if (used.contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
    if (name == "lm_head.weight" && config.tie_word_embeddings) {
      const at::Tensor head = checked(files, config, name, {config.vocab_size, config.hidden_size});
      if (head.equal(files.tensor("model.embed_tokens.weight"))) continue;
      fail(
          "tensor \"lm_head.weight\" differs from the embedding although tie_word_embeddings is "
          "true");
    }
    fail("tensor \"" + name + "\" belongs to no part of the model" + of_config(config));
  }
}

}  // namespace

Weights load_weights(const std::filesystem::path& dir, const Config& config,
                     const WeightOptions& options) {
  const WeightFiles files = WeightFiles::open(dir);
  Weights weights;
  std::set<std::string> used;
  visit_all({config}, weights,
            [&](const std::string& name, const std::vector<int64_t>& shape, at::Tensor& tensor) {
              const std::string there = options.unilm_attention ? unilm_name(name) : name;
              used.insert(there);
              const at::Tensor stored = checked(files, config, there, shape);
              if (options.refuse_non_finite) require_finite(stored, there);
              tensor = options.dtype
                           ? stored.to(*options.dtype, /*non_blocking=*/false, /*copy=*/true)
                           : stored;
            });
  if (options.unilm_attention) leave_unilm_layout(files, config, options, weights, used);
  check_extra(files, config, used);
  if (!options.dtype) weights.mappings = files.mappings();
  if (config.tie_word_embeddings) weights.lm_head = weights.embed;
  return weights;
}

void drop_pages(const Weights& weights, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t end = begin + tensor.nbytes();
  for (const std::span<const char> file : weights.mappings) {
    const auto first = reinterpret_cast<uintptr_t>(file.data());
    if (file.empty() || begin < first || end > first + file.size()) continue;
    // Whole pages only: neighbours may be read where they are. A hint, so its result does not
    // matter; only in a mapped file, since memory of our own would be zeros afterwards.
    const uintptr_t from = (begin + page - 1) / page * page, to = end / page * page;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    return;
  }
}

std::string base_weights_sha256(const std::filesystem::path& dir) {
  return WeightFiles::open(dir).sha256();
}

std::vector<std::pair<std::string, at::Tensor*>> layer_places(LayerWeights& layer) {
  std::vector<std::pair<std::string, at::Tensor*>> places;
  const Config none;
  visit_layer({none, true}, "", layer,
              [&](const std::string& name, const std::vector<int64_t>&, at::Tensor& tensor) {
                places.emplace_back(name, &tensor);
              });
  return places;
}

std::vector<std::pair<std::string, at::Tensor>> named_weights(const Weights& weights) {
  Config shape;
  shape.layers = static_cast<int64_t>(weights.layers.size());
  shape.tie_word_embeddings = weights.lm_head.is_same(weights.embed);
  std::vector<std::pair<std::string, at::Tensor>> named;
  Weights copy = weights;
  visit_all({shape, true}, copy,
            [&](const std::string& name, const std::vector<int64_t>&, at::Tensor& tensor) {
              if (tensor.defined()) named.emplace_back(name, tensor);
            });
  return named;
}

}  // namespace dex::model
