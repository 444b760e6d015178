#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/kernels/weight_view.h"
#include "worker/model/config.h"

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
};

// A base model ready to serve: weights stay in the mapped files where their type allows it.
// Immutable, so any thread may read it. No LibTorch in this header; the tensors that own the bytes
// are behind `storage`.
struct ServingModel {
  model::Config config;
  kernels::Number number =
      kernels::Number::kBf16;  // of what the engine itself stores: KV cache, folded weights
  std::string weights_sha256;
  WeightView embed, norm, lm_head;
  std::vector<LayerView> layers;
  std::vector<float> cos, sin;  // [max positions, d/2]
  int64_t bytes = 0;            // of all weights, mapped ones included
  std::shared_ptr<const void> storage;
};

enum class Dtype { kAsStored, kBf16, kF32 };
// "bf16", "f32" or empty (as stored). Throws "[serve] dtype …".
Dtype parse_dtype(const std::string& text);

// Loads `dir`. With kF32 nothing is ever rounded: bf16 weights stay as they are, since widening
// them is exact, but KV cache and folded weights are fp32. With kBf16 weights stored in fp32 are
// rounded once. Reads every byte for their hash (0.2 s for 270 MB); throws "[serve] …" when that is
// not `weights_sha256` (empty: any), else as model::load_weights does. `positions` above what the
// model was trained for extrapolates: its config then says so many.
std::shared_ptr<const ServingModel> load_serving_model(const std::filesystem::path& dir,
                                                       Dtype dtype,
                                                       const std::string& weights_sha256 = {},
                                                       int64_t positions = 0);

// What an adapter changes in a layer: K and V projections as trained, O with the branch folded in
// (method.md §2.4); views without data mean the base's.
struct LayerOverride {
  WeightView k, v, o;
  WeightView k_bias, v_bias, o_bias;
};

// An adapter ready to serve. Immutable; requests keep it alive while they run.
struct ServingAdapter {
  std::string id;
  std::string content_sha256;
  uint64_t key =
      0;  // the first 64 bits of content_sha256: starts the KV cache's hash chain. The base has 0
  std::vector<LayerOverride> layers;
  int64_t bytes = 0;  // that it takes beside the base
  std::shared_ptr<const void> storage;
};

// What an adapter must have been made for. Empty: not checked.
struct TextHashes {
  std::string tokenizer_sha256;
  std::string chat_template_sha256;
};

// Reads, checks and folds the adapter of `dir`: the fold in fp32, then rounded to the model's
// number. `content_sha256` empty: that of its checksums.json. Blocks on the disk and computes for a
// moment; any thread. Throws
// "[adapter] …" for whatever model::load_adapter refuses, another tokenizer, or another chat
// template.
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

}  // namespace dex::serve
