#include "worker/serve/serving_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "services/base/files.h"
#include "services/base/memory_room.h"
#include "services/base/sha256.h"
#include "worker/kernels/rope.h"
#include "worker/model/adapter.h"
#include "worker/model/differential_attention.h"
#include "worker/model/fold.h"
#include "worker/model/rope_frequencies.h"
#include "worker/model/weights.h"
#include "worker/serve/weight_storage.h"

namespace dex::serve {
namespace {

using kernels::Number;

// How the model keeps the weights of linears.
Keep keep_linears(const ServingModel& model) {
  if (model.quantized) return *model.quantized == Number::kInt4 ? Keep::kInt4 : Keep::kInt8;
  return model.number == Number::kBf16 ? Keep::kBf16 : Keep::kAsStored;
}

// The same of a head or a bottleneck adapter: products of few weights that much depends on.
Keep keep_small(Keep linears) {
  return linears == Keep::kInt4 ? Keep::kInt8 : linears;
}

// The tensors that folding reads; at::Tensor copies share their bytes.
struct ModelStorage {
  ModelStorage(model::Weights loaded, bool panels) : weights(std::move(loaded)), views(panels) {}
  model::Weights weights;
  WeightStorage views;
};

// Whether a model's linears are copied into panels, in large pages: several rows are twice as fast
// there, a guest streams one a quarter faster, and copying takes a core less time than hashing
// takes the other. But a mapped file is shared by all engines on a machine and costs nothing to
// start with, which counts for models whose copies would crowd out other things.
bool fits_twice(const model::Weights& weights, int64_t panel_bytes) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model::named_weights(weights))
    bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes <= panel_bytes && 4 * bytes <= base::memory_room().bytes;
}

LayerView view_layer(const model::LayerWeights& w, WeightStorage& storage, Keep linears,
                     Keep small) {
  LayerView out;
  // Norms are small, and rounding them would touch every number of a layer.
  out.input_norm = storage.view(w.input_norm, Keep::kAsStored);
  out.post_norm = storage.view(w.post_norm, Keep::kAsStored);
  out.q_norm = storage.view(w.q_norm, Keep::kAsStored);
  out.k_norm = storage.view(w.k_norm, Keep::kAsStored);
  const std::pair<const at::Tensor*, WeightView*> views[] = {
      {&w.q, &out.q},       {&w.k, &out.k},   {&w.v, &out.v},      {&w.o, &out.o},
      {&w.gate, &out.gate}, {&w.up, &out.up}, {&w.down, &out.down}};
  for (const auto& [tensor, view] : views) *view = storage.linear(*tensor, linears);
  // W_λ is small too, and what it gives scales a whole map.
  const std::pair<const at::Tensor*, WeightView*> rest[] = {
      {&w.q_bias, &out.q_bias},       {&w.k_bias, &out.k_bias},          {&w.v_bias, &out.v_bias},
      {&w.o_bias, &out.o_bias},       {&w.gate_bias, &out.gate_bias},    {&w.up_bias, &out.up_bias},
      {&w.down_bias, &out.down_bias}, {&w.lambda_proj, &out.lambda_proj}};
  for (const auto& [tensor, view] : rest) *view = storage.view(*tensor, small);
  return out;
}

// λ of V1 depends on nothing but weights: a number, once.
void view_lambda(const model::LayerWeights& w, int64_t layer, LayerView& out) {
  if (!w.lambda_q1.defined()) return;
  const double init = model::lambda_init(layer);
  out.lambda_init = static_cast<float>(init);
  out.lambda =
      model::differential_lambda({w.lambda_q1, w.lambda_k1, w.lambda_q2, w.lambda_k2}, init)
          .item<float>();
}

std::vector<float> copy(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<float>();
  return {data, data + flat.numel()};
}

std::vector<float> floats(const at::Tensor& tensor) {
  return tensor.defined() ? copy(tensor.to(at::kFloat)) : std::vector<float>();
}

// A map of method.md §3.2, [in, out] or [H, in, out], as a Linear weight: [out, in] or [H·out, in].
at::Tensor as_weight(const at::Tensor& map) {
  const at::Tensor turned = map.to(at::kFloat).transpose(-1, -2).contiguous();
  return turned.reshape({-1, turned.size(-1)});
}

bool branch_acts(const model::LayerAdaptation& layer, const model::DexOptions& options) {
  return options.has_branch() && layer.mask.defined() &&
         layer.mask.count_nonzero().item<int64_t>() > 0;
}

LayerBranch unfolded(const model::LayerAdaptation& layer, const model::DexOptions& options,
                     double lambda, WeightStorage& storage) {
  LayerBranch out;
  if (!branch_acts(layer, options)) return out;
  out.strength = floats(layer.mask * (options.sign_value() * lambda));
  out.gate = floats(layer.branch.gate);
  if (!options.has_projection()) return out;
  if (options.is_linear()) {
    out.map = storage.view(as_weight(model::projection_map(layer.branch)), Keep::kAsStored);
  } else {
    out.down = storage.view(as_weight(layer.branch.w_down), Keep::kAsStored);
    out.up = storage.view(as_weight(layer.branch.w_up), Keep::kAsStored);
  }
  return out;
}

BottleneckView view_bottleneck(const model::BottleneckAdapter& adapter, WeightStorage& storage,
                               Keep keep) {
  return {storage.view(adapter.down_weight, keep), storage.view(adapter.down_bias, Keep::kAsStored),
          storage.view(adapter.up_weight, keep), storage.view(adapter.up_bias, Keep::kAsStored)};
}

LowRankView view_term(const model::LowRank& term, WeightStorage& storage) {
  return {storage.view(term.a, Keep::kAsStored),
          storage.view(term.b * term.scale, Keep::kAsStored)};
}

// What stands beside a layer's weights: LoRA terms and bottleneck adapters. A term beside a folded
// W_O would have to read what the branch makes of O, so it goes in as well.
void view_added(const model::LayerAdaptation& layer, bool folded, Keep keep, WeightStorage& storage,
                LayerOverride& views) {
  for (const model::Linear linear : model::kLinears) {
    const model::LowRank& term = layer.lora[linear];
    if (!term.defined() || (linear == model::Linear::kO && folded)) continue;
    views.lora[static_cast<size_t>(linear)] = view_term(term, storage);
  }
  views.attention_adapter = view_bottleneck(layer.attention_adapter, storage, keep_small(keep));
  views.mlp_adapter = view_bottleneck(layer.mlp_adapter, storage, keep_small(keep));
}

// W_O with the branch inside where `folded`, else as trained. Nothing to fold and nothing replaced:
// undefined, the base's W_O, so that its rows join the others' in one product.
at::Tensor output_projection(const model::LayerAdaptation& layer, const at::Tensor& base_o,
                             const model::DexOptions& options, bool folded) {
  if (!folded) return layer.o;
  const at::Tensor& w_o = layer.o.defined() ? layer.o : base_o;
  return model::folded_o_proj(model::merged(w_o, layer.lora[model::Linear::kO]), layer, options);
}

void check_hash(const char* what, const std::string& found, const std::string& expected) {
  if (found.empty() || expected.empty() || found == expected) return;
  throw std::runtime_error(std::string("[adapter] made for another ") + what +
                           ": expected sha256 " + expected + ", found " + found);
}

std::string adapter_file_hash(const std::filesystem::path& file) {
  auto hash = base::sha256_file(file);
  if (!hash.ok()) throw std::runtime_error("[adapter] " + hash.status().message());
  return std::move(hash).value();
}

// Of an adapter whose branch is apart: its own weights, and whoever owns the others.
struct ApartStorage {
  explicit ApartStorage(bool panels) : views(panels) {}
  WeightStorage views;
  std::shared_ptr<const ServingAdapter> folded;
};

std::shared_ptr<ServingAdapter> build_adapter(const model::Adapter& adapter, const std::string& id,
                                              const std::string& content_sha256,
                                              const ServingModel& model) {
  const auto& base = static_cast<const ModelStorage*>(model.storage.get())->weights;
  const at::InferenceMode inference;
  const Keep keep = keep_linears(model);
  auto storage = std::make_shared<WeightStorage>(model.panels);
  auto out = std::make_shared<ServingAdapter>();
  const model::DexOptions& options = adapter.adaptation.options;
  if (!options.branch_folds()) out->branch = UnfoldedBranch{options, {}};
  for (size_t i = 0; i < base.layers.size(); ++i) {
    const model::LayerAdaptation& layer = adapter.adaptation.layers.at(i);
    const bool folded = options.branch_folds() && branch_acts(layer, options);
    LayerOverride& views = out->layers.emplace_back();
    views.k = storage->linear(layer.k, keep);
    views.v = storage->linear(layer.v, keep);
    views.o = storage->linear(output_projection(layer, base.layers[i].o, options, folded), keep);
    views.k_bias = storage->view(layer.k_bias, Keep::kAsStored);
    views.v_bias = storage->view(layer.v_bias, Keep::kAsStored);
    views.o_bias = storage->view(layer.o_bias, Keep::kAsStored);
    view_added(layer, folded, keep, *storage, views);
    if (out->branch)
      out->branch->layers.push_back(unfolded(layer, options, adapter.lambda.at(i), *storage));
    // Layer by layer, so that what was folded in fp32 goes; by one thread: others are being served.
    storage->finish(1);
  }
  out->activation = options.adapter.activation;
  out->method = model::method_name(options.train);
  out->has_lambda = options.has_branch();
  out->id = id;
  out->content_sha256 = content_sha256;
  out->key = kv_key(content_sha256);
  out->bytes = storage->bytes();
  out->storage = storage;
  return out;
}

}  // namespace

uint64_t kv_key(const std::string& sha256) {
  uint64_t value = 0;
  std::from_chars(sha256.data(), sha256.data() + std::min<size_t>(16, sha256.size()), value, 16);
  return value == 0 ? 1 : value;  // 0 is the base
}

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
  if (text == "int8") return Dtype::kInt8;
  if (text == "int4") return Dtype::kInt4;
  throw std::runtime_error("[serve] dtype must be bf16, f32, int8 or int4, got " + text);
}

const char* dtype_name(const ServingModel& model) {
  if (model.quantized) return *model.quantized == Number::kInt4 ? "int4" : "int8";
  return model.number == Number::kF32 ? "f32" : "bf16";
}

std::shared_ptr<const ServingModel> load_serving_model(const std::filesystem::path& dir,
                                                       Dtype dtype,
                                                       const std::string& weights_sha256,
                                                       int64_t positions, int64_t panel_bytes) {
  auto model = std::make_shared<ServingModel>();
  model->config = model::load_config(dir);
  model->config.max_position_embeddings =
      std::max(model->config.max_position_embeddings, positions);
  // Hashing takes as long as everything else here together, so another core does it meanwhile.
  std::future<std::string> hash =
      std::async(std::launch::async, [&dir] { return model::base_weights_sha256(dir); });
  model::Weights loaded = model::load_weights(dir, model->config, {.refuse_non_finite = true});
  model->panels = fits_twice(loaded, panel_bytes);
  auto storage = std::make_shared<ModelStorage>(std::move(loaded), model->panels);
  const model::Weights& w = storage->weights;
  const bool stored_f32 = w.layers.at(0).q.scalar_type() != at::kBFloat16;
  if (dtype == Dtype::kInt8) model->quantized = Number::kInt8;
  if (dtype == Dtype::kInt4) model->quantized = Number::kInt4;
  const bool as_stored = dtype == Dtype::kAsStored || model->quantized;
  const bool f32 = dtype == Dtype::kF32 || (as_stored && stored_f32);
  model->number = f32 ? Number::kF32 : Number::kBf16;
  const Keep rounded = f32 ? Keep::kAsStored : Keep::kBf16, linears = keep_linears(*model);
  model->embed = storage->views.view(w.embed, rounded);
  // A tied head is read as a linear by every token and as rows by few: quantised or in panels it is
  // a second copy, which pays.
  const bool shared = w.lm_head.is_same(w.embed) && !model->quantized && !model->panels;
  model->lm_head = shared ? model->embed : storage->views.linear(w.lm_head, keep_small(linears));
  model->norm = storage->views.view(w.norm, Keep::kAsStored);
  for (size_t i = 0; i < w.layers.size(); ++i) {
    model->layers.push_back(view_layer(w.layers[i], storage->views, linears, rounded));
    view_lambda(w.layers[i], static_cast<int64_t>(i), model->layers.back());
  }
  const auto copied =
      storage->views.finish(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  // Their file's pages would count as this process' memory besides, until the host runs short.
  for (const at::Tensor& tensor : copied) model::drop_pages(w, tensor);
  const auto [cos, sin] =
      kernels::rope_angles(at::arange(model->config.max_position_embeddings, at::kLong),
                           model::rope_frequencies(model->config));
  model->cos = copy(cos);
  model->sin = copy(sin);
  // Adapters are held against this hash: it must be that of the bytes which answer.
  model->weights_sha256 = hash.get();
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
  return build_adapter(adapter, id, content_sha256, model);
}

std::shared_ptr<const ServingAdapter> load_serving_adapter(const std::filesystem::path& dir,
                                                           const std::string& id,
                                                           const std::string& content_sha256,
                                                           const ServingModel& model,
                                                           const TextHashes& text) {
  const model::Adapter adapter = model::load_adapter(dir, {model.config, model.weights_sha256},
                                                     {.peft_folder = content_sha256.empty()});
  check_hash("tokenizer", adapter.tokenizer_sha256, text.tokenizer_sha256);
  check_hash("chat template", adapter.chat_template_sha256, text.chat_template_sha256);
  const bool ours = std::filesystem::exists(dir / model::kChecksumFile);
  const std::string manifest =
      adapter_file_hash(dir / (ours ? model::kChecksumFile : "adapter_model.safetensors"));
  auto out = build_adapter(adapter, id, content_sha256.empty() ? manifest : content_sha256, model);
  if (out->is_folded()) {
    out->folder = dir;
    out->manifest_sha256 = manifest;
  }
  return out;
}

std::shared_ptr<const ServingAdapter> make_branch_apart(
    std::shared_ptr<const ServingAdapter> folded, const model::Adapter& adapter,
    const ServingModel& model) {
  const at::InferenceMode inference;
  const Keep keep = keep_linears(model);
  auto storage = std::make_shared<ApartStorage>(model.panels);
  auto out = std::make_shared<ServingAdapter>(*folded);
  const model::DexOptions& options = adapter.adaptation.options;
  out->branch = UnfoldedBranch{options, {}};
  for (size_t i = 0; i < out->layers.size(); ++i) {
    const model::LayerAdaptation& layer = adapter.adaptation.layers.at(i);
    if (branch_acts(layer, options)) {
      LayerOverride& views = out->layers[i];
      views.o = storage->views.linear(layer.o, keep);              // none of its own: the base's
      const model::LowRank& term = layer.lora[model::Linear::kO];  // reads O' again
      if (term.defined())
        views.lora[static_cast<size_t>(model::Linear::kO)] = view_term(term, storage->views);
    }
    out->branch->layers.push_back(unfolded(layer, options, adapter.lambda.at(i), storage->views));
  }
  storage->views.finish(1);
  out->bytes = storage->views.bytes();
  storage->folded = std::move(folded);
  out->storage = storage;
  return out;
}

std::shared_ptr<const ServingAdapter> load_branch_apart(
    std::shared_ptr<const ServingAdapter> folded, const ServingModel& model) {
  const std::filesystem::path& folder = folded->folder;
  if (folder.empty())
    throw std::runtime_error("[adapter] " + folded->id + " has no folder to be read again from");
  const model::Adapter adapter = model::load_adapter(folder, {model.config, model.weights_sha256});
  if (adapter_file_hash(folder / model::kChecksumFile) != folded->manifest_sha256) {
    throw std::runtime_error("[adapter] " + folder.string() +
                             " holds another adapter than when it was loaded; load it again");
  }
  return make_branch_apart(std::move(folded), adapter, model);
}

}  // namespace dex::serve
