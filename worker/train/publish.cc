#include "worker/train/publish.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "worker/train/disk_failure.h"
#include "worker/train/failure.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

constexpr size_t kProbeTokens = 128;

// The first ids of the documents, enough for a comparison of logits and small enough for [N, V].
model::Batch probe(const std::vector<evaluate::Document>& documents) {
  std::vector<std::vector<int64_t>> ids;
  size_t left = kProbeTokens;
  for (const evaluate::Document& document : documents) {
    const auto part = document.ids.first(std::min(left, document.ids.size()));
    if (!part.empty()) ids.emplace_back(part.begin(), part.end());
    left -= part.size();
    if (left == 0) break;
  }
  return model::pack(ids);
}

void require(const model::Certificate& certificate, double limit, const std::string& what) {
  if (certificate.largest <= limit) return;
  throw Failure(Exit::kInternal, "internal",
                what + " differs from the trained model by up to " +
                    number_text(certificate.largest) + " in a logit");
}

}  // namespace

void export_artefact(const std::filesystem::path& directory, const JobSpec& spec,
                     const Identity& identity, const model::Weights& base,
                     const model::Adaptation& adaptation, const std::string& metrics,
                     const evaluate::BranchEffect& effect) {
  model::Adapter adapter = model::make_adapter(adaptation);
  adapter.base_model_name_or_path = spec.model_name;
  adapter.base_weights_sha256 = identity.base_weights_sha256;
  adapter.tokenizer_sha256 = identity.tokenizer_sha256;
  adapter.chat_template_sha256 = identity.chat_template_sha256;
  adapter.job_id = spec.job_id;
  adapter.metrics = metrics;
  adapter.branch_effect = evaluate::to_json(effect);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);  // an attempt's directory used twice
  with_disk_failures([&] {
    if (adaptation.options.publishes_model()) {
      model::write_checkpoint(directory, spec.model_dir, base, adapter);
    } else {
      model::write_adapter(directory, adapter);
    }
  });
}

Verification verify_artefact(const std::filesystem::path& directory, const model::Llama& llama,
                             const model::Weights& base, const model::Adaptation& adaptation,
                             const Identity& identity,
                             const std::vector<evaluate::Document>& documents) {
  const at::NoGradGuard no_grad;
  const model::Batch batch = probe(documents);
  const at::Tensor trained = llama.logits(batch, adaptation);
  const auto of_weights = [&](const model::Weights& weights) {
    return model::certificate(model::Llama(llama.config(), weights).logits(batch), trained);
  };
  if (adaptation.options.publishes_model()) {
    const auto stored =
        of_weights(model::load_weights(directory, llama.config(), {.dtype = at::kFloat}));
    // Of the methods that publish a model full+dex alone has something to fold: its branch.
    const bool folds = adaptation.options.has_branch();
    require(stored, folds ? model::kBrokenFold : model::kExactFold, "the exported checkpoint");
    return {stored, folds ? std::optional(stored) : std::nullopt};
  }
  const model::Adapter loaded =
      model::load_adapter(directory, {llama.config(), identity.base_weights_sha256});
  Verification out;
  out.read_back = model::certificate(llama.logits(batch, loaded.adaptation), trained);
  require(out.read_back, model::kExactFold, "the exported adapter");
  if (!model::not_foldable(loaded.adaptation.options).empty()) return out;
  out.folded = of_weights(model::folded_weights(base, loaded.adaptation));
  require(*out.folded, model::kBrokenFold, "the folded adapter");
  return out;
}

ArtefactSize artefact_size(const std::filesystem::path& directory) {
  ArtefactSize out;
  auto hash = base::sha256_file(directory / "checksums.json");
  if (!hash.ok()) throw Failure(Exit::kRetryable, "internal", hash.status().message());
  out.content_sha256 = std::move(hash).value();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    out.bytes += static_cast<int64_t>(entry.file_size());
  }
  return out;
}

}  // namespace dex::train
