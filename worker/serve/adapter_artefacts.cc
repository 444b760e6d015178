#include "worker/serve/adapter_artefacts.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "services/base/sha256.h"
#include "worker/model/adapter.h"
#include "worker/model/provenance.h"
#include "worker/model/weights.h"
#include "worker/serve/fold_command.h"
#include "worker/serve/text_model.h"

namespace dex::serve {
namespace {

namespace fs = std::filesystem;
using Kind = ArtefactFailure::Kind;

constexpr const char* kArtefactConfig = "adapter_config.json";
constexpr const char* kArtefactTensors = "adapter_model.safetensors";
constexpr int64_t kLargestSums = 1 << 20;
constexpr size_t kCopiedAtOnce = 1 << 20;

void store(const base::Status& status) {
  if (status.ok()) return;
  throw ArtefactFailure(status.reason() == "STORAGE_FULL"     ? Kind::kDiskFull
                        : status.reason() == "QUOTA_EXCEEDED" ? Kind::kQuota
                                                              : Kind::kDisk,
                        status.message());
}

// A sentence of the rooms below, which name files by their paths.
std::string without_folder(std::string text, const fs::path& folder) {
  const std::string path = folder.string();
  for (size_t at = 0; !path.empty() && (at = text.find(path, at)) != std::string::npos;) {
    const size_t end = at + path.size();
    const bool slash = end < text.size() && text[end] == '/';
    text.replace(at, path.size() + (slash ? 1 : 0), slash ? "" : "the folder");
  }
  return text;
}

model::Config config_of(const fs::path& folder) {
  try {
    return model::load_config(folder);
  } catch (const std::runtime_error& error) {
    throw ArtefactFailure(Kind::kBase, error.what());
  }
}

std::string weights_of(const fs::path& folder, const std::string& known) {
  if (!known.empty()) return known;
  try {
    return model::base_weights_sha256(folder);
  } catch (const std::runtime_error& error) {
    throw ArtefactFailure(Kind::kBase, error.what());
  }
}

// The hash that an adapter was made with, against the one that it would be served with.
void require_same(const std::string& what, const std::string& found, const std::string& expected) {
  if (found.empty() || expected.empty() || found == expected) return;
  throw ArtefactFailure(Kind::kAdapter, "the adapter was made for another " + what +
                                            ": expected SHA-256 " + expected + ", found " + found);
}

// Whether each linear has the options' one rank and scale, from the first layer on.
bool is_regular(const model::Adapter& adapter) {
  const model::DexOptions& options = adapter.adaptation.options;
  if (options.train != model::Train::kLora) return true;
  const model::LoraOptions& lora = options.lora;
  if (!model::problems(lora).empty()) return false;
  const double scale = model::lora_scale(lora.alpha, lora.r, lora.rslora);
  for (size_t i = 0; i < adapter.adaptation.layers.size(); ++i) {
    for (const model::Linear linear : model::kLinears) {
      const model::LowRank& term = adapter.adaptation.layers[i].lora[linear];
      const bool targeted =
          std::find(lora.targets.begin(), lora.targets.end(), linear) != lora.targets.end();
      const bool wanted = targeted && static_cast<int64_t>(i) >= options.first_layer;
      if (term.defined() != wanted) return false;
      if (wanted && (term.a.size(0) != lora.r || term.scale != scale)) return false;
    }
  }
  return true;
}

void copy_into(base::AtomicDirectory& directory, const fs::path& from, const std::string& name) {
  std::ifstream in(from / name, std::ios::binary);
  auto writer = directory.open(name);
  store(writer.status());
  std::string piece(kCopiedAtOnce, '\0');
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    store(writer->append({piece.data(), static_cast<size_t>(in.gcount())}));
  if (!in.eof()) throw ArtefactFailure(Kind::kDisk, name + " can't be read");
  store(directory.finish(std::move(*writer)));
}

// The uploaded files as they are; `sums` is their own checksums.json, if they have one.
void publish_adapter(const AdapterImportWork& work, const model::Adapter& adapter,
                     const std::optional<std::string>& sums) {
  auto directory = base::AtomicDirectory::create(work.out);
  store(directory.status());
  if (sums) {
    const auto named = nlohmann::json::parse(*sums);  // load_adapter has read it
    for (const auto& [name, hash] : named.items()) copy_into(*directory, work.uploaded, name);
    return store(directory->commit(model::kChecksumFile, *sums));
  }
  copy_into(*directory, work.uploaded, kArtefactConfig);
  copy_into(*directory, work.uploaded, kArtefactTensors);
  store(directory->write(model::kProvenanceFile, model::provenance_json(adapter)));
  nlohmann::ordered_json made;
  for (const auto& entry : directory->entries()) made[entry.name] = entry.sha256;
  store(directory->commit(model::kChecksumFile, made.dump(2) + "\n"));
}

// checksums.json of what is there, last.
void seal(const fs::path& folder) {
  nlohmann::json sums = nlohmann::json::object();  // by name
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto hash = base::sha256_file(entry.path());
    store(hash.status());
    sums[entry.path().filename().string()] = *hash;
  }
  store(base::write_file_atomically(folder / model::kChecksumFile, sums.dump(2) + "\n"));
}

// Another base than the allow-list's explains any failure, and is this worker's matter. Looked at
// only then, since it reads all of the weights.
void require_known_base(const AdapterExportWork& work) {
  if (work.weights_sha256.empty() || weights_of(work.model, "") == work.weights_sha256) return;
  throw ArtefactFailure(Kind::kBase, "the base model's weights have another SHA-256 than expected");
}

// Folding throws words, not codes: the system's own text tells why the disk takes no more.
ArtefactFailure fold_failure(const std::string& what, const AdapterExportWork& work) {
  const auto says = [&what](int error) {
    return what.find(std::generic_category().message(error)) != std::string::npos;
  };
  const Kind kind = says(ENOSPC)                  ? Kind::kDiskFull
                    : says(EDQUOT) || says(EFBIG) ? Kind::kQuota
                                                  : Kind::kDisk;
  return {kind, without_folder(without_folder(without_folder(what, work.adapter), work.model),
                               work.out.parent_path())};
}

}  // namespace

ImportedAdapter import_adapter(const AdapterImportWork& work) {
  const model::Config config = config_of(work.model);
  const std::string weights = weights_of(work.model, work.weights_sha256);
  const auto text = TextModel::load(work.model);
  if (!text.ok()) throw ArtefactFailure(Kind::kBase, text.status().message());
  const std::string tokenizer = text->tokenizer ? text->tokenizer->sha256() : "";
  const std::string chat_template = text->chat_template ? text->chat_template->sha256() : "";

  model::Adapter adapter;
  try {
    adapter = model::load_adapter(work.uploaded, {config, weights},
                                  {.widen = false, .peft_folder = true});
  } catch (const std::runtime_error& error) {
    throw ArtefactFailure(Kind::kAdapter, without_folder(error.what(), work.uploaded));
  }
  std::optional<std::string> sums;
  if (fs::exists(work.uploaded / model::kChecksumFile)) {
    auto read = base::read_file(work.uploaded / model::kChecksumFile, kLargestSums);
    store(read.status());
    sums = std::move(read).value();
    require_same("tokenizer", adapter.tokenizer_sha256, tokenizer);
    require_same("chat template", adapter.chat_template_sha256, chat_template);
  } else {
    adapter.base_model_name_or_path = work.model_name;
    adapter.base_weights_sha256 = weights;
    adapter.tokenizer_sha256 = tokenizer;
    adapter.chat_template_sha256 = chat_template;
  }
  publish_adapter(work, adapter, sums);
  (void)model::load_adapter(work.out, {config, weights}, {.widen = false});  // as serving reads it

  ImportedAdapter out{.options = adapter.adaptation.options, .regular = is_regular(adapter)};
  if (out.options.has_branch()) out.lambda = adapter.lambda;
  out.base_weights_sha256 = adapter.base_weights_sha256;
  out.tokenizer_sha256 = adapter.tokenizer_sha256;
  out.chat_template_sha256 = adapter.chat_template_sha256;
  out.artifact_class = model::artifact_class(out.options, config);
  return out;
}

FoldedModel export_folded_adapter(const AdapterExportWork& work) {
  const model::Config config = config_of(work.model);
  const std::string weights = weights_of(work.model, work.weights_sha256);
  const auto manifest = base::sha256_file(work.adapter / model::kChecksumFile);
  store(manifest.status());
  if (*manifest != work.content_sha256)
    throw ArtefactFailure(Kind::kDisk, "the adapter is not the one that was published");
  try {
    const model::Adapter adapter =
        model::load_adapter(work.adapter, {config, weights}, {.widen = false});
    const std::string reason = model::not_foldable(adapter.adaptation.options);
    if (!reason.empty()) throw ArtefactFailure(Kind::kNotFoldable, reason);
  } catch (const ArtefactFailure&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw ArtefactFailure(Kind::kAdapter, without_folder(error.what(), work.adapter));
  }
  try {
    const FoldReport report =
        fold_into({.model = work.model, .adapter = work.adapter, .dtype = work.dtype}, work.out);
    seal(work.out);
    return {.dtype = report.dtype,
            .base_weights_sha256 = weights,
            .largest_logit_difference = report.largest_logit_difference,
            .mean_logit_difference = report.mean_logit_difference,
            .tokens = report.tokens,
            .within_bound = report.within_bound};
  } catch (const ArtefactFailure&) {
    throw;
  } catch (const std::runtime_error& error) {
    require_known_base(work);
    throw fold_failure(error.what(), work);
  }
}

}  // namespace dex::serve
