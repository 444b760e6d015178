#include "scheduler/core/workload.h"

#include <algorithm>
#include <cmath>

namespace dex::core {

namespace {
int64_t ceil_div(int64_t a, int64_t b) {
  return b > 0 ? (a + b - 1) / b : 0;
}
}  // namespace

DataFacts data_facts(const dex::v1::File& file) {
  DataFacts facts;
  facts.format = file.format();
  facts.rows = file.statistics().rows_good();
  facts.tokens = file.statistics().tokens_guess();
  facts.longest_row_tokens = ceil_div(file.statistics().longest_row_bytes(), 4);
  for (const auto& [tag, rows] : file.statistics().rows_by_tag()) facts.rows_by_tag[tag] = rows;
  for (const auto& [language, rows] : file.statistics().rows_by_language())
    facts.rows_by_language[language] = rows;
  return facts;
}

Workload workload(const dex::v1::FineTuningJobSpec& spec, const DataFacts& training,
                  const DataFacts* validation) {
  const auto& hyper = spec.hyperparameters();
  const double split = validation ? 0.0 : spec.validation_split();
  const int64_t length = std::max<int64_t>(1, hyper.max_seq_length());
  const int64_t batch = std::max<int64_t>(1, hyper.batch_size());

  Workload work;
  work.validation_tokens = validation
                               ? validation->tokens
                               : static_cast<int64_t>(static_cast<double>(training.tokens) * split);
  const auto rows =
      std::max<int64_t>(1, std::llround(static_cast<double>(training.rows) * (1.0 - split)));
  int64_t tokens =
      std::max<int64_t>(1, training.tokens - (validation ? 0 : work.validation_tokens));
  if (hyper.truncation() != dex::v1::Hyperparameters::TRUNCATION_CHUNK) {
    tokens = std::min(tokens, rows * length);  // what is beyond a row's limit is cut off
  }
  work.tokens_per_pass = tokens;
  const bool whole =
      hyper.packing() || hyper.truncation() == dex::v1::Hyperparameters::TRUNCATION_CHUNK;
  work.sequences_per_pass = whole ? std::max<int64_t>(1, ceil_div(tokens, length)) : rows;
  work.tokens_per_sequence = std::max<int64_t>(1, tokens / work.sequences_per_pass);
  work.tokens_per_update = std::min(tokens, work.tokens_per_sequence * batch);
  const int64_t by_epochs =
      ceil_div(work.sequences_per_pass, batch) * std::max<int64_t>(1, hyper.n_epochs());
  work.updates_given = hyper.max_steps() > 0;
  work.updates = work.updates_given ? hyper.max_steps() : std::max<int64_t>(1, by_epochs);
  return work;
}

std::string updates_text(const Workload& work) {
  return (work.updates_given ? "" : "about ") + std::to_string(work.updates) + " updates";
}

}  // namespace dex::core
