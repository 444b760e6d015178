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
#include "worker/model/peft_config.h"
#include "worker/model/provenance.h"
#include "worker/model/safetensors.h"
#include "worker/model/safetensors_bytes.h"

namespace dex::model {

namespace {

namespace fs = std::filesystem;
constexpr const char* kTensorFile = "adapter_model.safetensors";
constexpr const char* kConfigFile = "adapter_config.json";
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
  bool any_float = false;  // PEFT stores in the type it trained in
};

// LoRA's entries of a layer: what its config says must be there (the terms' shapes are set
// already).
void add_lora(std::vector<Entry>& list, LoraTensors& lora, size_t layer) {
  for (const Linear linear : kLinears) {
    if (!lora[linear].defined()) continue;
    for (const auto& [factor, tensor] :
         {std::pair{'A', &lora[linear].a}, std::pair{'B', &lora[linear].b}}) {
      list.push_back({"base_model.model." + lora_key(static_cast<int64_t>(layer), linear, factor),
                      tensor->sizes().vec(), at::kFloat, tensor, /*any_float=*/true});
    }
  }
}

void add_adapter(std::vector<Entry>& list, BottleneckAdapter& adapter, const std::string& prefix,
                 const std::vector<std::vector<int64_t>>& shapes) {
  const auto places = adapter_places(adapter);
  for (size_t i = 0; i < places.size(); ++i) {
    list.push_back(
        {prefix + "adapter." + places[i].first, shapes[i], at::kFloat, places[i].second});
  }
}

// The one list of what an adapter of these options holds.
std::vector<Entry> entries(Adaptation& adaptation, const Config& config, at::ScalarType dtype) {
  const DexOptions& options = adaptation.options;
  const int64_t D = config.hidden_size, q = config.heads * config.head_dim,
                k = config.key_heads() * config.head_dim, v = config.kv_heads * config.head_dim;
  std::vector<Entry> list;
  for (auto i = static_cast<size_t>(options.first_layer); i < adaptation.layers.size(); ++i) {
    LayerAdaptation& layer = adaptation.layers[i];
    const std::string layer_prefix = "base_model.model.model.layers." + std::to_string(i) + ".",
                      prefix = layer_prefix + "self_attn.";
    if (options.trains_kvo()) {
      list.push_back({prefix + "k_proj.weight", {k, D}, dtype, &layer.k});
      list.push_back({prefix + "v_proj.weight", {v, D}, dtype, &layer.v});
      list.push_back({prefix + "o_proj.weight", {D, q}, dtype, &layer.o});
      if (config.qkv_bias) {
        list.push_back({prefix + "k_proj.bias", {k}, dtype, &layer.k_bias});
        list.push_back({prefix + "v_proj.bias", {v}, dtype, &layer.v_bias});
      }
      if (config.o_bias) list.push_back({prefix + "o_proj.bias", {D}, dtype, &layer.o_bias});
    }
    for (const auto& [key, shape] : branch_shapes(options, config)) {
      const bool scalar =
          key == "gate" || key == "lambda_learn";  // small and sensitive: always fp32
      list.push_back({prefix + "dex." + key, shape, scalar ? at::kFloat : dtype,
                      &branch_field(layer.branch, key)});
    }
    add_lora(list, layer.lora, i);
    if (options.has_adapter() && options.adapter.after_attention())
      add_adapter(list, layer.attention_adapter, prefix, adapter_shapes(options.adapter, config));
    if (options.has_adapter() && options.adapter.after_mlp()) {
      add_adapter(list, layer.mlp_adapter, layer_prefix + "mlp.",
                  adapter_shapes(options.adapter, config));
    }
  }
  return list;
}

bool is_expected(const at::Tensor& stored, const Entry& entry) {
  const at::ScalarType type = stored.scalar_type();
  const bool good_type =
      type == entry.dtype || (entry.any_float && (type == at::kBFloat16 || type == at::kHalf));
  return good_type && stored.sizes() == at::IntArrayRef(entry.shape);
}

// checksums.json: exactly our files. Null for a folder of PEFT's, where that is allowed.
nlohmann::json read_checksums(const fs::path& dir, const AdapterOptions& options) {
  const fs::path path = dir / kChecksumFile;
  if (!fs::exists(path)) {
    if (options.peft_folder) return nullptr;
    fail(path.string(), "expected this file, found none: not a finished adapter");
  }
  const nlohmann::json json = parse_object(read_json_file(path), "adapter", path.string());
  const JsonFields fields(json, "adapter", path.string());
  if (fields.has("config.json")) {
    fail(dir.string(),
         "is a whole model (class MODEL), not an adapter: it needs an engine of its own, serve it "
         "as a base model");
  }
  fields.allow_only({kTensorFile, kConfigFile, kProvenanceFile});
  fields.text(kTensorFile);
  fields.text(kConfigFile);
  if (fields.has(kProvenanceFile)) fields.text(kProvenanceFile);
  return json;
}

// `checksums` null: nothing to compare with.
void check_hash(const fs::path& path, const nlohmann::json& checksums, const std::string& found) {
  if (checksums.is_null()) return;
  const std::string expected = checksums[path.filename().string()].get<std::string>();
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
                  const nlohmann::json& checksums, bool widen) {
  const auto list = entries(adapter.adaptation, config, adapter.dtype);
  const uint64_t header_limit = uint64_t{32} << 20;
  const Safetensors file =
      Safetensors::open(path, Safetensors::Access::kRead, expected_bytes(list) + header_limit);
  check_hash(path, checksums, file.sha256());
  for (const Entry& entry : list) {
    if (!file.has(entry.key))
      fail(path.string(), "expected tensor \"" + entry.key + "\", found none");
    const at::Tensor stored = file.tensor(entry.key);
    if (!is_expected(stored, entry)) {
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

std::string read_checked(const fs::path& path, const nlohmann::json& checksums) {
  const std::string text = read_json_file(path);
  check_hash(path, checksums, base::sha256_hex(text));
  return text;
}

// Options, hashes and the places of the tensors, by either of the two layouts.
Adapter read_config(const fs::path& dir, const nlohmann::json& checksums, const Config& config) {
  const fs::path path = dir / kConfigFile;
  const std::string text = read_checked(path, checksums);
  if (!is_peft_lora(text, path.string())) {
    if (checksums.is_null())
      fail(path.string(),
           "expected peft_type LORA in a folder without " + std::string(kChecksumFile));
    Adapter adapter = parse_adapter_config(text, config, path.string());
    adapter.adaptation.layers.resize(static_cast<size_t>(config.layers));
    return adapter;
  }
  Adapter adapter = parse_peft_config(text, config, path.string());
  if (checksums.is_null()) return adapter;
  const fs::path provenance = dir / kProvenanceFile;
  if (!checksums.contains(kProvenanceFile))
    fail(provenance.string(), "expected this file in " + std::string(kChecksumFile));
  read_provenance(read_checked(provenance, checksums), provenance.string(), adapter);
  return adapter;
}

}  // namespace

Adapter load_adapter(const fs::path& dir, const BaseIdentity& base, const AdapterOptions& options) {
  const nlohmann::json checksums = read_checksums(dir, options);
  Adapter adapter = read_config(dir, checksums, base.config);
  if (!checksums.is_null()) check_base(adapter, base, dir / kConfigFile);
  if (const auto refusal = branch_refusal(base.config);
      adapter.adaptation.options.has_branch() && !refusal.empty())
    fail((dir / kConfigFile).string(), refusal);
  const DexOptions& method = adapter.adaptation.options;
  const bool patterned = method.train == Train::kLora;  // its terms have their places already
  for (auto i = static_cast<size_t>(method.first_layer);
       !patterned && method.has_lora() && i < adapter.adaptation.layers.size(); ++i) {
    // Of the right shapes; the values are read next.
    adapter.adaptation.layers[i].lora = initial_lora(method.lora, base.config, 0, 0);
  }
  read_tensors(adapter, dir / kTensorFile, base.config, checksums, options.widen);
  if (!adapter.adaptation.options.has_branch()) return adapter;
  for (size_t i = 0; i < adapter.adaptation.layers.size(); ++i) {
    adapter.adaptation.layers[i].mask =
        layer_mask(method, base.config, static_cast<int64_t>(i), adapter.selected_heads[i]);
    adapter.adaptation.layers[i].lambda = {adapter.lambda[i], 0};
  }
  return adapter;
}

void write_adapter(const fs::path& dir, const Adapter& adapter) {
  const DexOptions& options = adapter.adaptation.options;
  if (options.publishes_model()) {
    fail(dir.string(), "method " + std::string(method_name(options.train)) +
                           " makes a checkpoint, not an adapter");
  }
  Adaptation adaptation = adapter.adaptation;  // tensors are shared; the list below is of places
  NamedTensors tensors;
  for (const Trainable& entry : trainables(adaptation)) {
    // Small and sensitive tensors, and LoRA as PEFT expects it, are always fp32.
    const bool gate = entry.name.ends_with(".dex.gate");
    const bool wide = gate || entry.group == Group::kLambda || entry.group == Group::kAdded;
    tensors.emplace_back("base_model.model." + entry.name,
                         entry.tensor->detach().to(wide ? at::kFloat : adapter.dtype));
  }
  auto directory = base::AtomicDirectory::create(dir);
  require(directory.status(), dir);
  auto writer = directory->open(kTensorFile);
  require(writer.status(), dir);
  stream_safetensors(tensors, {{"format", "pt"}}, (dir / kTensorFile).string(),
                     [&](std::string_view bytes) { require(writer->append(bytes), dir); });
  require(directory->finish(std::move(*writer)), dir);
  if (options.train == Train::kLora) {
    require(directory->write(kConfigFile, peft_config_json(adapter)), dir);
    require(directory->write(kProvenanceFile, provenance_json(adapter)), dir);
  } else {
    require(directory->write(kConfigFile, adapter_config_json(adapter)), dir);
  }
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
    if (static_cast<int64_t>(i) < adaptation.options.first_layer) continue;
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
