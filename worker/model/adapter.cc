#include "worker/model/adapter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "worker/kernels/check.h"
#include "worker/model/adapter_config.h"
#include "worker/model/json_fields.h"
#include "worker/model/safetensors.h"
#include "worker/model/safetensors_bytes.h"

namespace dex::model {

namespace {

namespace fs = std::filesystem;
constexpr const char* kTensorFile = "adapter_model.safetensors";
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kChecksumFile = "checksums.json";
constexpr int64_t kMaxJsonBytes = 16 << 20;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw std::runtime_error("[adapter] " + file + ": " + what);
}

std::string read_json_file(const fs::path& path) {
  const auto text = base::read_file(path, kMaxJsonBytes);
  if (!text.ok()) fail(path.string(), text.status().message());
  return *text;
}

void require(const base::Status& status, const fs::path& path) {
  if (!status.ok()) fail(path.string(), status.message());
}

// One stored tensor: its place in a layer and what it must look like.
struct Entry {
  std::string key;
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  at::Tensor* tensor;
};

// The one list of what an adapter of these options holds; reading and writing both walk it.
std::vector<Entry> entries(Adaptation& adaptation, const Config& config, at::ScalarType dtype) {
  const DexOptions& options = adaptation.options;
  const int64_t D = config.hidden_size, q = config.heads * config.head_dim,
                kv = config.kv_heads * config.head_dim;
  std::vector<Entry> list;
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    LayerAdaptation& layer = adaptation.layers[i];
    const std::string prefix = "base_model.model.model.layers." + std::to_string(i) + ".self_attn.";
    if (options.trains_kvo()) {
      list.push_back({prefix + "k_proj.weight", {kv, D}, dtype, &layer.k});
      list.push_back({prefix + "v_proj.weight", {kv, D}, dtype, &layer.v});
      list.push_back({prefix + "o_proj.weight", {D, q}, dtype, &layer.o});
      if (config.qkv_bias) {
        list.push_back({prefix + "k_proj.bias", {kv}, dtype, &layer.k_bias});
        list.push_back({prefix + "v_proj.bias", {kv}, dtype, &layer.v_bias});
      }
      if (config.o_bias) list.push_back({prefix + "o_proj.bias", {D}, dtype, &layer.o_bias});
    }
    for (const auto& [key, shape] : branch_shapes(options, config)) {
      const bool scalar =
          key == "gate" || key == "lambda_learn";  // small and sensitive: always fp32
      list.push_back({prefix + "dex." + key, shape, scalar ? at::kFloat : dtype,
                      &branch_field(layer.branch, key)});
    }
  }
  return list;
}

// checksums.json: exactly our two files.
nlohmann::json read_checksums(const fs::path& dir) {
  const fs::path path = dir / kChecksumFile;
  if (!fs::exists(path))
    fail(path.string(), "expected this file, found none: not a finished adapter");
  const nlohmann::json json = parse_object(read_json_file(path), "adapter", path.string());
  const JsonFields fields(json, "adapter", path.string());
  fields.allow_only({kTensorFile, kConfigFile});
  fields.text(kTensorFile);
  fields.text(kConfigFile);
  return json;
}

void check_hash(const fs::path& path, const std::string& expected, const std::string& found) {
  if (expected != found)
    fail(path.string(), "SHA-256, expected " + expected + " (checksums.json), found " + found);
}

void check_base(const Adapter& adapter, const BaseIdentity& base, const fs::path& path) {
  if (adapter.base_weights_sha256 == base.weights_sha256) return;
  fail(path.string(), "key \"base_weights_sha256\", expected " + base.weights_sha256 +
                          " (this base model), found " + adapter.base_weights_sha256 +
                          ": the adapter was made for another base (\"" +
                          adapter.base_model_name_or_path + "\")");
}

uint64_t expected_bytes(const std::vector<Entry>& list) {
  uint64_t bytes = 0;
  for (const Entry& entry : list) {
    uint64_t size = c10::elementSize(entry.dtype);
    for (const int64_t extent : entry.shape) size *= static_cast<uint64_t>(extent);
    bytes += size;
  }
  return bytes;
}

void read_tensors(Adapter& adapter, const fs::path& path, const Config& config,
                  const std::string& sha256, bool widen) {
  const auto list = entries(adapter.adaptation, config, adapter.dtype);
  const uint64_t header_limit = uint64_t{32} << 20;
  const Safetensors file =
      Safetensors::open(path, Safetensors::Access::kRead, expected_bytes(list) + header_limit);
  check_hash(path, sha256, file.sha256());
  for (const Entry& entry : list) {
    if (!file.has(entry.key))
      fail(path.string(), "expected tensor \"" + entry.key + "\", found none");
    const at::Tensor stored = file.tensor(entry.key);
    if (stored.sizes() != at::IntArrayRef(entry.shape) || stored.scalar_type() != entry.dtype) {
      fail(path.string(), "tensor \"" + entry.key + "\", expected " +
                              kernels::describe(at::Tensor(at::empty(entry.shape, entry.dtype))) +
                              ", found " + kernels::describe(stored));
    }
    require_finite(stored, path.string() + ": tensor \"" + entry.key + "\"");
    *entry.tensor = widen ? stored.to(at::kFloat, false, /*copy=*/true) : stored;
  }
  if (file.tensors().size() != list.size()) {
    for (const auto& [name, info] : file.tensors()) {
      bool known = false;
      for (const Entry& entry : list) known = known || entry.key == name;
      if (!known) fail(path.string(), "tensor \"" + name + "\", expected no such tensor, found it");
    }
  }
}

}  // namespace

Adapter load_adapter(const fs::path& dir, const BaseIdentity& base, const AdapterOptions& options) {
  const nlohmann::json checksums = read_checksums(dir);
  const std::string config_text = read_json_file(dir / kConfigFile);
  check_hash(dir / kConfigFile, checksums[kConfigFile].get<std::string>(),
             base::sha256_hex(config_text));
  Adapter adapter = parse_adapter_config(config_text, base.config, (dir / kConfigFile).string());
  check_base(adapter, base, dir / kConfigFile);

  adapter.adaptation.layers.resize(static_cast<size_t>(base.config.layers));
  read_tensors(adapter, dir / kTensorFile, base.config, checksums[kTensorFile].get<std::string>(),
               options.widen);
  if (!adapter.adaptation.options.has_branch()) return adapter;
  for (size_t i = 0; i < adapter.adaptation.layers.size(); ++i) {
    adapter.adaptation.layers[i].mask = head_mask(adapter.selected_heads[i], base.config.heads,
                                                  adapter.adaptation.options.soft_floor);
    adapter.adaptation.layers[i].lambda = {adapter.lambda[i], 0};
  }
  return adapter;
}

void write_adapter(const fs::path& dir, const Adapter& adapter) {
  NamedTensors tensors;
  for (size_t i = 0; i < adapter.adaptation.layers.size(); ++i) {
    const LayerAdaptation& layer = adapter.adaptation.layers[i];
    const std::string prefix = "base_model.model.model.layers." + std::to_string(i) + ".self_attn.";
    const auto add = [&](const std::string& key, const at::Tensor& tensor, at::ScalarType dtype) {
      if (tensor.defined()) tensors.emplace_back(prefix + key, tensor.detach().to(dtype));
    };
    add("k_proj.weight", layer.k, adapter.dtype);
    add("v_proj.weight", layer.v, adapter.dtype);
    add("o_proj.weight", layer.o, adapter.dtype);
    add("k_proj.bias", layer.k_bias, adapter.dtype);
    add("v_proj.bias", layer.v_bias, adapter.dtype);
    add("o_proj.bias", layer.o_bias, adapter.dtype);
    for (const char* key : {"w_d", "w_down", "w_up"}) {
      add(std::string("dex.") + key, branch_field(layer.branch, key), adapter.dtype);
    }
    for (const char* key : {"gate", "lambda_learn"}) {
      add(std::string("dex.") + key, branch_field(layer.branch, key), at::kFloat);
    }
  }
  auto directory = base::AtomicDirectory::create(dir);
  require(directory.status(), dir);
  auto writer = directory->open(kTensorFile);
  require(writer.status(), dir);
  stream_safetensors(tensors, {{"format", "pt"}}, (dir / kTensorFile).string(),
                     [&](std::string_view bytes) { require(writer->append(bytes), dir); });
  require(directory->finish(std::move(*writer)), dir);
  require(directory->write(kConfigFile, adapter_config_json(adapter)), dir);
  nlohmann::ordered_json checksums;
  for (const auto& entry : directory->entries()) checksums[entry.name] = entry.sha256;
  require(directory->commit(kChecksumFile, checksums.dump(2) + "\n"), dir);
}

Adapter make_adapter(const Adaptation& adaptation) {
  Adapter adapter;
  adapter.adaptation = adaptation;
  adapter.lambda = lambda_values(adaptation);
  const auto floor = static_cast<float>(adaptation.options.soft_floor);
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    const at::Tensor& mask = adaptation.layers[i].mask;
    auto& heads = adapter.selected_heads.emplace_back();
    for (int64_t head = 0; mask.defined() && head < mask.size(0); ++head) {
      const auto m = mask[head].item<float>();
      if (m != floor && m != 1) {
        throw std::runtime_error("[make_adapter] layer " + std::to_string(i) + ": mask of head " +
                                 std::to_string(head) + " must be " +
                                 (floor == 0 ? "0" : std::to_string(floor)) + " or 1, got " +
                                 std::to_string(m));
      }
      if (m == 1) heads.push_back(head);
    }
  }
  return adapter;
}

}  // namespace dex::model
