#include "scheduler/server/metrics_table.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace dex::server {

namespace {

using Json = nlohmann::ordered_json;

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// The columns of a row in their order; null: empty.
std::vector<std::pair<const char*, Json>> cells(uint32_t step, const v1::Metrics* trained,
                                                const v1::EvalComplete* evaluated) {
  const auto of_training = [&](auto get) { return trained ? finite(get(*trained)) : Json(); };
  const auto of_evaluation = [&](auto get) { return evaluated ? finite(get(*evaluated)) : Json(); };
  return {{"step", step},
          {"epoch", of_training([](const auto& m) { return m.epoch(); })},
          {"train_loss", of_training([](const auto& m) { return m.train_loss(); })},
          {"valid_loss", of_evaluation([](const auto& e) { return e.valid_loss(); })},
          {"valid_mean_token_accuracy",
           of_evaluation([](const auto& e) { return e.token_accuracy(); })},
          {"grad_norm", of_training([](const auto& m) { return m.grad_norm(); })},
          {"learning_rate", of_training([](const auto& m) { return m.learning_rate(); })},
          {"trained_tokens", trained ? Json(trained->trained_tokens()) : Json()},
          {"tokens_per_second", of_training([](const auto& m) { return m.tokens_per_second(); })},
          {"lambda_mean", of_training([](const auto& m) { return m.lambda_mean(); })},
          {"branch_ratio", of_evaluation([](const auto& e) { return e.branch_ratio(); })}};
}

template <typename Values>
void add_layers(const char* name, const Values& values, Json& object) {
  if (values.empty()) return;
  Json list = Json::array();
  for (const float value : values) list.push_back(finite(value));
  object[name] = std::move(list);
}

}  // namespace

void MetricsTable::add(const v1::FineTuningEvent& event) {
  if (event.has_metrics()) {
    const uint32_t step = event.metrics().step();
    // An evaluation is followed by the figures of its update once more, with those by layer.
    if (step < last_trained_) rows_.erase(rows_.lower_bound(step), rows_.end());
    last_trained_ = step;
    rows_[step].metrics = event.metrics();
  } else if (event.has_eval_complete()) {
    rows_[event.eval_complete().step()].evaluation = event.eval_complete();
  }
}

std::string MetricsTable::csv() const {
  std::string text;
  for (const auto& [name, unused] : cells(0, nullptr, nullptr))
    text += (text.empty() ? "" : ",") + std::string(name);
  text += '\n';
  for (const auto& [step, row] : rows_) {
    std::string line;
    for (const auto& [name, value] : cells(step, row.metrics ? &*row.metrics : nullptr,
                                           row.evaluation ? &*row.evaluation : nullptr)) {
      line += (line.empty() ? "" : ",") + (value.is_null() ? "" : value.dump());
    }
    text += line + '\n';
  }
  return text;
}

std::string MetricsTable::jsonl() const {
  std::string text;
  for (const auto& [step, row] : rows_) {
    Json object = Json::object();
    for (auto& [name, value] : cells(step, row.metrics ? &*row.metrics : nullptr,
                                     row.evaluation ? &*row.evaluation : nullptr)) {
      if (!value.is_null()) object[name] = std::move(value);
    }
    if (row.metrics) {
      add_layers("lambda_by_layer", row.metrics->lambda(), object);
      add_layers("branch_ratio_by_layer", row.metrics->branch_ratio(), object);
    }
    text += object.dump() + '\n';
  }
  return text;
}

}  // namespace dex::server
