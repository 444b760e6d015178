#include "worker/serve/serving_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "worker/kernels/rope.h"
#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/rope_frequencies.h"
#include "worker/model/weights.h"

namespace dex::serve {
namespace {

using kernels::Number;

// Keeps tensors alive and gives views of them in a type that the kernels read.
class Storage {
 public:
  // `round`: fp32 becomes bf16. Types other than fp32 and bf16 are widened.
  WeightView view(const at::Tensor& tensor, bool round) {
    if (!tensor.defined()) return {};
    at::Tensor kept = tensor.contiguous();
    if (kept.scalar_type() != at::kFloat && kept.scalar_type() != at::kBFloat16)
      kept = kept.to(at::kFloat);
    if (round && kept.scalar_type() == at::kFloat) kept = kept.to(at::kBFloat16);
    const bool matrix = kept.dim() == 2;
    const WeightView view{kept.const_data_ptr(),
                          kept.scalar_type() == at::kFloat ? Number::kF32 : Number::kBf16,
                          matrix ? kept.size(0) : 1, kept.size(-1)};
    bytes_ += static_cast<int64_t>(kept.nbytes());
    tensors_.push_back(std::move(kept));
    return view;
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::vector<at::Tensor> tensors_;
  int64_t bytes_ = 0;
};

// The tensors that folding reads; at::Tensor copies share their bytes.
struct ModelStorage {
  model::Weights weights;
  Storage views;
};

LayerView view_layer(const model::LayerWeights& w, Storage& storage, bool round) {
  LayerView out;
  // Norms are small, and rounding them would touch every number of a layer.
  out.input_norm = storage.view(w.input_norm, false);
  out.post_norm = storage.view(w.post_norm, false);
  out.q_norm = storage.view(w.q_norm, false);
  out.k_norm = storage.view(w.k_norm, false);
  const std::pair<const at::Tensor*, WeightView*> views[] = {{&w.q, &out.q},
                                                             {&w.k, &out.k},
                                                             {&w.v, &out.v},
                                                             {&w.o, &out.o},
                                                             {&w.gate, &out.gate},
                                                             {&w.up, &out.up},
                                                             {&w.down, &out.down},
                                                             {&w.q_bias, &out.q_bias},
                                                             {&w.k_bias, &out.k_bias},
                                                             {&w.v_bias, &out.v_bias},
                                                             {&w.o_bias, &out.o_bias},
                                                             {&w.gate_bias, &out.gate_bias},
                                                             {&w.up_bias, &out.up_bias},
                                                             {&w.down_bias, &out.down_bias}};
  for (const auto& [tensor, view] : views) *view = storage.view(*tensor, round);
  return out;
}

std::vector<float> copy(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<float>();
  return {data, data + flat.numel()};
}

uint64_t first_bits(const std::string& hex) {
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + std::min<size_t>(16, hex.size()), value, 16);
  return value == 0 ? 1 : value;  // 0 is the base
}

void check_hash(const char* what, const std::string& found, const std::string& expected) {
  if (found.empty() || expected.empty() || found == expected) return;
  throw std::runtime_error(std::string("[adapter] made for another ") + what +
                           ": expected sha256 " + expected + ", found " + found);
}

}  // namespace

void use_one_library_thread() {
  at::set_num_threads(1);
  // LibTorch takes this one only once, and before its first parallel work.
  static const bool once = (at::set_num_interop_threads(1), true);
  static_cast<void>(once);
}

Dtype parse_dtype(const std::string& text) {
  if (text.empty()) return Dtype::kAsStored;
  if (text == "bf16") return Dtype::kBf16;
  if (text == "f32") return Dtype::kF32;
  throw std::runtime_error("[serve] dtype must be bf16 or f32, got " + text);
}

std::shared_ptr<const ServingModel> load_serving_model(const std::filesystem::path& dir,
                                                       Dtype dtype,
                                                       const std::string& weights_sha256,
                                                       int64_t positions) {
  auto model = std::make_shared<ServingModel>();
  model->config = model::load_config(dir);
  model->config.max_position_embeddings =
      std::max(model->config.max_position_embeddings, positions);
  auto storage = std::make_shared<ModelStorage>();
  storage->weights = model::load_weights(dir, model->config);
  const model::Weights& w = storage->weights;
  const bool stored_f32 = w.layers.at(0).q.scalar_type() != at::kBFloat16;
  const bool f32 = dtype == Dtype::kF32 || (dtype == Dtype::kAsStored && stored_f32);
  model->number = f32 ? Number::kF32 : Number::kBf16;
  model->embed = storage->views.view(w.embed, !f32);
  model->lm_head = w.lm_head.is_same(w.embed) ? model->embed : storage->views.view(w.lm_head, !f32);
  model->norm = storage->views.view(w.norm, false);
  for (const auto& layer : w.layers)
    model->layers.push_back(view_layer(layer, storage->views, !f32));
  const auto [cos, sin] =
      kernels::rope_angles(at::arange(model->config.max_position_embeddings, at::kLong),
                           model::rope_frequencies(model->config));
  model->cos = copy(cos);
  model->sin = copy(sin);
  // Adapters are held against this hash: it must be that of the bytes which answer.
  model->weights_sha256 = model::base_weights_sha256(dir);
  if (!weights_sha256.empty() && model->weights_sha256 != weights_sha256) {
    throw std::runtime_error("[serve] the weights in " + dir.string() + " have SHA-256 " +
                             model->weights_sha256 + ", the model list says " + weights_sha256 +
                             ": put the right files there, or correct the list");
  }
  model->bytes = storage->views.bytes();
  model->storage = storage;
  return model;
}

std::shared_ptr<const ServingAdapter> make_serving_adapter(const model::Adapter& adapter,
                                                           const std::string& id,
                                                           const std::string& content_sha256,
                                                           const ServingModel& model) {
  const auto& base = static_cast<const ModelStorage*>(model.storage.get())->weights;
  const at::InferenceMode inference;
  const bool round = model.number == Number::kBf16;
  auto storage = std::make_shared<Storage>();
  auto out = std::make_shared<ServingAdapter>();
  for (size_t i = 0; i < base.layers.size(); ++i) {
    const model::LayerAdaptation& layer = adapter.adaptation.layers.at(i);
    LayerOverride& views = out->layers.emplace_back();
    views.k = storage->view(layer.k, round);
    views.v = storage->view(layer.v, round);
    views.k_bias = storage->view(layer.k_bias, false);
    views.v_bias = storage->view(layer.v_bias, false);
    views.o_bias = storage->view(layer.o_bias, false);
    // Nothing to fold and nothing replaced: the base's W_O, so that its rows join the others' in
    // one product.
    const bool branch = adapter.adaptation.options.has_branch() && layer.mask.defined() &&
                        layer.mask.count_nonzero().item<int64_t>() > 0;
    if (!layer.o.defined() && !branch) continue;
    const at::Tensor& w_o = layer.o.defined() ? layer.o : base.layers[i].o;
    views.o = storage->view(model::folded_o_proj(w_o, layer, adapter.adaptation.options), round);
  }
  out->id = id;
  out->content_sha256 = content_sha256;
  out->key = first_bits(content_sha256);
  out->bytes = storage->bytes();
  out->storage = storage;
  return out;
}

std::shared_ptr<const ServingAdapter> load_serving_adapter(const std::filesystem::path& dir,
                                                           const std::string& id,
                                                           const std::string& content_sha256,
                                                           const ServingModel& model,
                                                           const TextHashes& text) {
  const model::Adapter adapter = model::load_adapter(dir, {model.config, model.weights_sha256});
  check_hash("tokenizer", adapter.tokenizer_sha256, text.tokenizer_sha256);
  check_hash("chat template", adapter.chat_template_sha256, text.chat_template_sha256);
  std::string content = content_sha256;
  if (content.empty()) {
    auto hash = base::sha256_file(dir / "checksums.json");
    if (!hash.ok()) throw std::runtime_error("[adapter] " + hash.status().message());
    content = *hash;
  }
  return make_serving_adapter(adapter, id, content, model);
}

}  // namespace dex::serve
