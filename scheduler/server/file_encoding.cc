#include "scheduler/server/file_encoding.h"

#include <algorithm>
#include <string>

#include "scheduler/core/resolve.h"
#include "scheduler/core/workload.h"
#include "services/data_view/file_report.h"

namespace dex::server {

namespace {

// "hyperparameters.max_seq_length" and "dex.preset" are fields of a job; here they are the
// encoding's.
base::Status as_encoding(const base::Status& status) {
  base::Status renamed(status.code(), status.reason(), status.message());
  for (const auto& violation : status.violations()) {
    const std::string& field = violation.field;
    const std::string name = field.substr(field.rfind('.') + 1);
    renamed = std::move(renamed).with_violation("encoding." + name, violation.description);
  }
  return renamed;
}

}  // namespace

base::Result<v1::RowEncoding> resolve_encoding(const v1::RowEncoding& asked, const v1::Model& model,
                                               const v1::File& file) {
  core::ResolveInput input;
  input.model = model;
  input.spec.set_model(model.name());
  input.spec.set_training_file(file.id());
  if (asked.has_preset()) input.spec.mutable_dex()->set_preset(asked.preset());
  auto& hyper = *input.spec.mutable_hyperparameters();
  if (asked.has_max_seq_length()) hyper.set_max_seq_length(asked.max_seq_length());
  if (asked.truncation() != v1::Hyperparameters::TRUNCATION_UNSPECIFIED)
    hyper.set_truncation(asked.truncation());
  if (asked.has_train_on_inputs()) hyper.set_train_on_inputs(asked.train_on_inputs());
  input.training = core::data_facts(file);
  // Nobody trains on a file without a good row, but its rows may be looked at.
  input.training.rows = std::max<int64_t>(1, input.training.rows);
  input.training.tokens = std::max<int64_t>(1, input.training.tokens);
  // Groups belong to drawing, not to encoding: a preset that draws by them must not refuse a file
  // without any here.
  hyper.set_group_by(v1::Hyperparameters::GROUP_BY_NONE);
  const auto resolved = core::resolve(input);
  if (!resolved.ok()) return as_encoding(resolved.status());
  const v1::FineTuningJobSpec& spec = resolved->config.spec();
  v1::RowEncoding encoding;
  encoding.set_preset(spec.dex().preset());
  encoding.set_max_seq_length(spec.hyperparameters().max_seq_length());
  encoding.set_truncation(spec.hyperparameters().truncation());
  encoding.set_train_on_inputs(spec.hyperparameters().train_on_inputs());
  return encoding;
}

text::RowEncoder::Options encoder_options(const v1::RowEncoding& encoding, const v1::Model& model) {
  return {.max_seq_length = static_cast<int32_t>(encoding.max_seq_length()),
          .truncation = data_view::truncation(encoding.truncation()),
          .train_on_inputs = encoding.train_on_inputs(),
          .vocab_size = static_cast<int32_t>(model.vocab_size())};
}

}  // namespace dex::server
