#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "worker/model/fold.h"
#include "worker/model/json_fields.h"
#include "worker/model/provenance.h"
#include "worker/model/safetensors_bytes.h"
#include "worker/model/second_map.h"

namespace dex::model {

namespace {

namespace fs = std::filesystem;
constexpr const char* kCertificateFile = "fold_certificate.json";
constexpr const char* kConversionFile = "conversion.json";
constexpr int64_t kMaxCopiedBytes = int64_t{64}
                                    << 20;  // a tokenizer.json of a large vocabulary has 30 MB

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("[export] " + what);
}

void require(const base::Status& status, const fs::path& path) {
  if (!status.ok()) fail(path.string() + ": " + status.message());
}

// What config.json of a child says otherwise than the base's.
struct ConfigChange {
  at::ScalarType dtype;
  std::string second_map;        // the version; empty: as the base
  bool keeps_each_type = false;  // tensors stay in the types they have; else all become `dtype`
};

std::string changed_config(const std::string& text, const ConfigChange& change) {
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(text);
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(change.dtype);
  if (!change.second_map.empty()) config[kSecondMapKey] = {{"version", change.second_map}};
  return config.dump(2) + "\n";
}

// Everything of the base but its weights and the lists of their shards, in whatever format;
// config.json with the type that the new weights have.
void copy_companions(base::AtomicDirectory& out, const fs::path& base_dir,
                     const ConfigChange& change) {
  for (const auto& entry : fs::directory_iterator(base_dir)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.ends_with(".safetensors") || name.ends_with(".index.json");
    const bool text = name.ends_with(".json") || name.ends_with(".jinja") ||
                      name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".md") ||
                      name == "LICENSE";
    // A base that was trained or folded here itself: what it says of its origin is not true of its
    // child.
    const bool of_origin = name == kProvenanceFile || name == kChecksumFile ||
                           name == kCertificateFile || name == kConversionFile;
    if (weights || !text || of_origin || !entry.is_regular_file()) continue;
    const auto content = base::read_file(entry.path(), kMaxCopiedBytes);
    require(content.status(), entry.path());
    const bool config = name == "config.json";
    require(out.write(name, config ? changed_config(*content, change) : *content), entry.path());
  }
}

base::AtomicDirectory begin_checkpoint(const fs::path& out, const fs::path& base_dir,
                                       const Weights& weights, const ConfigChange& change) {
  NamedTensors tensors = named_weights(weights);
  for (auto& [name, tensor] : tensors)
    tensor = change.keeps_each_type ? tensor.detach() : tensor.detach().to(change.dtype);
  auto directory = base::AtomicDirectory::create(out);
  require(directory.status(), out);
  auto writer = directory->open("model.safetensors");
  require(writer.status(), out);
  stream_safetensors(tensors, {{"format", "pt"}}, out.string(),
                     [&](std::string_view bytes) { require(writer->append(bytes), out); });
  require(directory->finish(std::move(*writer)), out);
  copy_companions(*directory, base_dir, change);
  return std::move(*directory);
}

}  // namespace

const char* torch_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    default:
      fail("dtype must be float32, bfloat16 or float16, got " + std::string(c10::toString(type)));
  }
}

void export_folded(const fs::path& out, const fs::path& base_dir, const Config& config,
                   const Adaptation& adaptation, at::ScalarType dtype,
                   const Certificate& certificate) {
  const std::string type_name = torch_name(dtype);
  const std::string reason = not_foldable(adaptation.options);
  if (!reason.empty()) fail(reason);  // before the base is read
  const Weights base = load_weights(base_dir, config, {.refuse_non_finite = true});
  auto directory = begin_checkpoint(out, base_dir, folded_weights(base, adaptation), {dtype, ""});
  const nlohmann::ordered_json report = {{"dtype", type_name},
                                         {"within_bound", certificate.within_bound()},
                                         {"largest_logit_difference", certificate.largest},
                                         {"mean_logit_difference", certificate.mean}};
  require(directory.commit(kCertificateFile, report.dump(2) + "\n"), out);
}

void export_converted(const fs::path& out, const fs::path& base_dir, const Weights& weights,
                      at::ScalarType dtype, const std::string& conversion) {
  auto directory = begin_checkpoint(out, base_dir, weights, {dtype, "", true});
  require(directory.commit(kConversionFile, conversion), out);
}

void write_checkpoint(const fs::path& out, const fs::path& base_dir, const Weights& base,
                      const Adapter& adapter) {
  const Adaptation& adaptation = adapter.adaptation;
  if (adaptation.mix != 1) {
    throw std::runtime_error("[write_checkpoint] mix is " + std::to_string(adaptation.mix) +
                             ": a second map is published when it is mixed in whole, at 1");
  }
  const DexOptions& options = adaptation.options;
  // A second map is among the weights of its model, which no other holds.
  auto directory = begin_checkpoint(
      out, base_dir,
      options.has_second_map() ? replaced_weights(base, adaptation)
                               : folded_weights(base, adaptation),
      {adapter.dtype,
       options.has_second_map() ? std::string(name(options.second_map.version)) : std::string()});
  require(directory.write(kProvenanceFile, provenance_json(adapter)), out);
  nlohmann::ordered_json checksums;
  for (const auto& entry : directory.entries()) checksums[entry.name] = entry.sha256;
  require(directory.commit(kChecksumFile, checksums.dump(2) + "\n"), out);
}

}  // namespace dex::model
