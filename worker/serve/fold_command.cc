#include "worker/serve/fold_command.h"

#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/model/weights.h"

namespace dex::serve {
namespace {

constexpr int64_t kProbeTokens = 64;

model::Batch probe(int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kProbeTokens; ++i) ids.push_back((7919 * i + 17) % vocabulary);
  return model::pack({ids});
}

}  // namespace

FoldReport fold_into(const LocalModel& where, const std::filesystem::path& to) {
  if (where.adapter.empty()) throw std::runtime_error("--adapter: name the folder to fold in");
  if (where.dtype == "int8" || where.dtype == "int4") {
    throw std::runtime_error("--dtype: a folded model is written in f32 or bf16; " + where.dtype +
                             " is how it may be served");
  }
  const at::NoGradGuard no_grad;
  const model::Config config = model::load_config(where.model);
  const model::Weights base =
      model::load_weights(where.model, config, {.dtype = at::kFloat, .refuse_non_finite = true});
  const model::Adapter adapter = model::load_adapter(
      where.adapter, {config, model::base_weights_sha256(where.model)}, {.peft_folder = true});

  const model::Batch batch = probe(config.vocab_size);
  const model::Weights folded = model::folded_weights(base, adapter.adaptation);
  const model::Certificate certificate =
      model::certificate(model::Llama(config, folded).logits(batch),
                         model::Llama(config, base).logits(batch, adapter.adaptation));
  if (certificate.broken()) {
    throw std::runtime_error("the folded model differs from the branch by " +
                             std::to_string(certificate.largest) +
                             " in a logit; nothing was written");
  }
  const at::ScalarType stored = model::load_weights(where.model, config).embed.scalar_type();
  const at::ScalarType dtype = where.dtype == "f32"    ? at::kFloat
                               : where.dtype == "bf16" ? at::kBFloat16
                                                       : stored;
  model::export_folded(to, where.model, config, adapter.adaptation, dtype, certificate);
  return {.dtype = model::torch_name(dtype),
          .tokens = kProbeTokens,
          .largest_logit_difference = certificate.largest,
          .mean_logit_difference = certificate.mean,
          .within_bound = certificate.within_bound()};
}

void fold(const LocalModel& where, const std::filesystem::path& to, std::ostream& out) {
  const FoldReport made = fold_into(where, to);
  nlohmann::json report = {{"folder", to.string()},
                           {"dtype", made.dtype},
                           {"tokens", made.tokens},
                           {"within_bound", made.within_bound},
                           {"largest_logit_difference", made.largest_logit_difference},
                           {"mean_logit_difference", made.mean_logit_difference}};
  if (!made.within_bound) {
    report["warning"] =
        "the difference is above the 1e-4 that rounding explains; compare the folded model with "
        "the adapter before using it";
  }
  out << report.dump() << std::endl;
}

}  // namespace dex::serve
