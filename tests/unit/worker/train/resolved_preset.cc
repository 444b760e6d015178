#include "tests/unit/worker/train/resolved_preset.h"

#include <stdexcept>

#include "dex/internal/v1/frames.pb.h"
#include "scheduler/core/presets.h"
#include "scheduler/core/resolve.h"
#include "worker/train/spec_io.h"

namespace dex::train::testing {

namespace {

v1::Model facts(const model::Config& config) {
  v1::Model facts;
  facts.set_name("tiny");
  facts.set_parameters(100'000);  // what counts is the size class
  facts.set_layers(static_cast<int32_t>(config.layers));
  facts.set_query_heads(static_cast<int32_t>(config.heads));
  facts.set_kv_heads(static_cast<int32_t>(config.kv_heads));
  facts.set_head_dim(static_cast<int32_t>(config.head_dim));
  facts.set_hidden_size(static_cast<int32_t>(config.hidden_size));
  facts.set_intermediate_size(static_cast<int32_t>(config.intermediate_size));
  facts.set_context_length(static_cast<int32_t>(config.max_position_embeddings));
  facts.set_vocab_size(static_cast<int32_t>(config.vocab_size));
  facts.set_tied_embeddings(config.tie_word_embeddings);
  return facts;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto name : core::preset_names()) names.emplace_back(name);
  return names;
}

JobSpec resolved_preset(const std::string& preset, const model::Config& model, const JobSpec& place,
                        int64_t updates) {
  core::ResolveInput input;
  input.model = facts(model);
  input.training = {v1::FILE_FORMAT_TOKENS, 60, 1300, 40};
  input.validation = core::DataFacts{v1::FILE_FORMAT_TOKENS, 12, 260, 40};
  input.spec.set_model("tiny");
  input.spec.set_training_file("file-1");
  input.spec.set_validation_file("file-2");
  input.spec.set_seed(3);
  input.spec.mutable_dex()->set_preset(preset);
  // Of 32 rows as in the presets a tiny row would leave nothing to measure.
  input.spec.mutable_dex()->mutable_head_selection()->mutable_calibration()->set_skip_rows(8);
  auto& hyper = *input.spec.mutable_hyperparameters();
  hyper.set_max_steps(static_cast<uint32_t>(updates));
  hyper.set_max_seq_length(64);
  hyper.set_batch_size(4);
  hyper.set_micro_batch_size(2);
  const auto resolved = core::resolve(input);
  if (!resolved.ok()) throw std::runtime_error(resolved.status().to_string());

  internal::v1::TrainerStart start;
  *start.mutable_spec() = resolved->config.spec();
  start.set_job_id(place.job_id);
  start.set_base_model_name(place.model_name);
  start.set_model_dir(place.model_dir);
  start.set_training_path(place.training_path);
  start.set_validation_path(place.validation_path);
  start.set_attempt_dir(place.attempt_dir);
  return parse_spec_bytes(start.SerializeAsString());
}

}  // namespace dex::train::testing
