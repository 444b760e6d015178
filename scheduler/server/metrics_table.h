#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dex/v1/events.pb.h"

namespace dex::server {

// A job's curves as a table, a row an update that reported anything; made of its events. Pure.
class MetricsTable {
 public:
  // The job's events in order; those without figures are passed over. Where a job went back to an
  // earlier update (another attempt, a rollback) the rows of what was lost go.
  void add(const v1::FineTuningEvent& event);

  // With a head: step, epoch, train_loss, valid_loss, valid_mean_token_accuracy, grad_norm,
  // learning_rate, trained_tokens, tokens_per_second, lambda_mean, branch_ratio. What was not
  // reported or is no finite number is empty.
  [[nodiscard]] std::string csv() const;
  // The same keys, one object a line, without those that would be empty; at evaluations also
  // lambda_by_layer and branch_ratio_by_layer (null: a layer without a selected head).
  [[nodiscard]] std::string jsonl() const;

 private:
  struct Row {
    std::optional<v1::Metrics> metrics;
    std::optional<v1::EvalComplete> evaluation;
  };
  std::map<uint32_t, Row> rows_;  // by step
  uint32_t last_trained_ = 0;
};

}  // namespace dex::server
