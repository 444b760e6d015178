#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/kernels/weight_view.h"
#include "worker/model/baselines.h"
#include "worker/model/config.h"
#include "worker/serve/branch.h"

namespace dex::model {
struct Adapter;
}

namespace dex::serve {

using kernels::WeightView;

// The engine's own threads compute (worker/kernels/thread_pool.h); LibTorch only loads and folds,
// in the calling thread. Once, before the first tensor.
void use_one_library_thread();

// One layer as the forward pass reads it; a bias or norm that the model lacks has no data.
struct LayerView {
  WeightView input_norm, q, k, v, o, post_norm, gate, up, down;
  WeightView q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
  WeightView q_norm, k_norm;
  // λ of a differential model (model/differential_attention.h): a number, or of V2 its projection.
  float lambda = 0, lambda_init = 0;
  WeightView lambda_proj;
};

// A base model ready to serve: weights of large models stay in the mapped files where their type
// allows it.
// Immutable, so any thread may read it. No LibTorch in this header; the tensors that own the bytes
// are behind `storage`.
struct ServingModel {
  model::Config config;
  kernels::Number number =
      kernels::Number::kBf16;  // of what the engine itself stores: KV cache, folded weights
  // kInt8 or kInt4: what the linears' weights are quantised to, adapters' included. Of kInt4 the
  // head and bottleneck adapters are in eight bits.
  std::optional<kernels::Number> quantized;
  std::string weights_sha256;
  WeightView embed, norm, lm_head;
  std::vector<LayerView> layers;
  // Linears that are not quantised are copied into panels (kernels/linear_panels.h), adapters'
  // included, instead of being read where the file is mapped. Quantised ones always have an order
  // of their own.
  bool panels = false;
  std::vector<float> cos, sin;  // [max positions, d/2]
  int64_t bytes = 0;            // of all weights, mapped ones included
  std::shared_ptr<const void> storage;
};

enum class Dtype { kAsStored, kBf16, kF32, kInt8, kInt4 };
// "bf16", "f32", "int8", "int4" or empty (as stored). Throws "[serve] dtype …".
Dtype parse_dtype(const std::string& text);
// "f32", "bf16", "int8" or "int4": what it serves with.
const char* dtype_name(const ServingModel& model);

// Of a model whose linears are copied into panels.
inline constexpr int64_t kMostPanelBytes = int64_t{1} << 30;

// Loads `dir`. Up to `panel_bytes` of weights that fit twice are copied into panels. With kF32
// nothing is ever rounded: bf16 weights stay as they are, since widening them is exact, but KV
// cache and folded weights are fp32. With kBf16 weights stored in fp32 are rounded once. With kInt8
// the linears and the head are quantised while loading, a scale an output channel
// (kernels/quantize.h); all else, W_λ of a second map too, is as stored. With kInt4 the linears are
// in four bits (kernels/linear_int4.h) and the head in eight: it is a fifth of SmolLM2's weights,
// four bits would make a step 12 % shorter and lose more than all linears together. Reads every
// byte for their hash (0.2 s for 270 MB, in a thread of its own); throws
// "[serve] …" when that is not `weights_sha256` (empty: any), else as model::load_weights does.
// `positions` above what the model was trained for extrapolates: its config then says so many.
std::shared_ptr<const ServingModel> load_serving_model(const std::filesystem::path& dir,
                                                       Dtype dtype,
                                                       const std::string& weights_sha256 = {},
                                                       int64_t positions = 0,
                                                       int64_t panel_bytes = kMostPanelBytes);

// A LoRA term beside a linear: y += (x·aᵀ)·bᵀ, in fp32, its scale multiplied into b. No data: none.
// It stays apart and is not merged: the factors take 3.7 MB where merged q, k, v, o of SmolLM2 take
// 53 in bf16, requests of different adapters go on sharing the base's product, which is what
// decoding pays for, and nothing is rounded.
struct LowRankView {
  WeightView a, b;  // [r, in] [out, r]
};

// h ← h + up(act(down(h))) of a bottleneck adapter. No data: none.
struct BottleneckView {
  WeightView down, down_bias, up, up_bias;
};

// What an adapter changes in a layer: K and V projections as trained, O with the branch folded in
// where it can be (method.md §2.4); views without data mean the base's.
struct LayerOverride {
  WeightView k, v, o;
  WeightView k_bias, v_bias, o_bias;
  std::array<LowRankView, model::kLinears.size()> lora;  // by model::Linear
  BottleneckView attention_adapter, mlp_adapter;         // after o_proj, after down_proj

  [[nodiscard]] const LowRankView& term(model::Linear linear) const {
    return lora[static_cast<size_t>(linear)];
  }
};

// What the KV cache's hash chain of an adapter starts from: the first 64 bits of a SHA-256 in hex,
// but never 0, which is the base's.
uint64_t kv_key(const std::string& sha256);

// An adapter ready to serve. Immutable; requests keep it alive while they run.
struct ServingAdapter {
  std::string id;
  std::string content_sha256;
  uint64_t key = 0;  // kv_key of content_sha256
  std::vector<LayerOverride> layers;
  // Of its bottleneck adapters.
  model::AdapterActivation activation = model::AdapterActivation::kRelu;
  std::string method;       // that it was trained with, by its name of api.md §3
  bool has_lambda = false;  // it has a branch, whose λ a request may scale (dex_lambda_scale)
  // A branch that is not in W_O but computed on each token: one that can't be folded, or is apart
  // (make_branch_apart).
  std::optional<UnfoldedBranch> branch;
  int64_t bytes = 0;  // that it takes beside the base
  std::shared_ptr<const void> storage;
  // Where load_branch_apart reads it again, and that it still is what it was; empty: it was made in
  // memory, or nothing of it is folded.
  std::filesystem::path folder;
  std::string manifest_sha256;  // of its checksums.json

  // The branch is inside W_O, where its λ can't be scaled any more.
  [[nodiscard]] bool is_folded() const { return has_lambda && !branch; }
  // Whether its sequences carry a BranchState. Their prefix can't come from the KV cache, since the
  // sums at a block's end are not kept with it.
  [[nodiscard]] bool keeps_state() const { return branch && branch->options.keeps_state(); }
};

// What an adapter must have been made for. Empty: not checked.
struct TextHashes {
  std::string tokenizer_sha256;
  std::string chat_template_sha256;
};

// Reads, checks and folds the adapter of `dir`: the fold in fp32, then rounded to the model's
// number or quantised with it (method.md §8.5). A branch that can't be folded stays in fp32.
// `content_sha256` empty: that of its checksums.json. Blocks on the disk and computes for a moment;
// any thread. Throws
// "[adapter] …" for whatever model::load_adapter refuses, another tokenizer, or another chat
// template. A LoRA folder that PEFT wrote is taken where no hash is asked for, by hand that is.
std::shared_ptr<const ServingAdapter> load_serving_adapter(const std::filesystem::path& dir,
                                                           const std::string& id,
                                                           const std::string& content_sha256,
                                                           const ServingModel& model,
                                                           const TextHashes& text = {});
// The same from one in memory.
std::shared_ptr<const ServingAdapter> make_serving_adapter(const model::Adapter& adapter,
                                                           const std::string& id,
                                                           const std::string& content_sha256,
                                                           const ServingModel& model);

// The same adapter as `folded`, whose is_folded() holds, with the branch beside W_O: what a
// dex_lambda_scale needs. Only W_O as it was trained and the branch's own maps are new, and `bytes`
// are theirs alone; everything else is shared with `folded`, which lives as long as the result.
// `adapter` is what `folded` was made from.
std::shared_ptr<const ServingAdapter> make_branch_apart(
    std::shared_ptr<const ServingAdapter> folded, const model::Adapter& adapter,
    const ServingModel& model);
// The same, read again from its folder, so that nobody keeps weights for requests that never come.
// Blocks on the disk and computes for a moment; any thread. Throws "[adapter] …" when the folder is
// not what it was.
std::shared_ptr<const ServingAdapter> load_branch_apart(
    std::shared_ptr<const ServingAdapter> folded, const ServingModel& model);

}  // namespace dex::serve
