#include "worker/train/train_state.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace dex::train {
namespace {

using nlohmann::json;

json optional_json(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

std::optional<double> optional_value(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

json masks_json(const HeadMasks::Table& table) {
  json out = json::array();
  for (const auto& layer : table) {
    json heads = json::array();
    for (const auto& head : layer) heads.push_back({head.from, head.to, head.since});
    out.push_back(heads);
  }
  return out;
}

HeadMasks::Table masks_value(const json& value) {
  HeadMasks::Table table;
  for (const json& layer : value) {
    std::vector<HeadMasks::Head> heads;
    for (const json& head : layer) {
      heads.push_back(
          {head.at(0).get<double>(), head.at(1).get<double>(), head.at(2).get<int64_t>()});
    }
    table.push_back(std::move(heads));
  }
  return table;
}

json early_json(const EarlyStopping::State& s) {
  return {{"evaluations", s.evaluations},
          {"in_row", s.in_row},
          {"reference", optional_json(s.reference)},
          {"best_loss", optional_json(s.best_loss)},
          {"best_step", s.best_step},
          {"stopped", s.stopped}};
}

EarlyStopping::State early_value(const json& in) {
  EarlyStopping::State s;
  in.at("evaluations").get_to(s.evaluations);
  in.at("in_row").get_to(s.in_row);
  s.reference = optional_value(in.at("reference"));
  s.best_loss = optional_value(in.at("best_loss"));
  in.at("best_step").get_to(s.best_step);
  in.at("stopped").get_to(s.stopped);
  return s;
}

// NaN is written as null, which nlohmann reads back as no number.
std::vector<double> numbers_or_nan(const json& in) {
  std::vector<double> out;
  for (const json& value : in) {
    out.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return out;
}

}  // namespace

std::string to_json(const TrainState& s) {
  const json watchdog = {{"non_finite_in_row", s.watchdog.non_finite_in_row},
                         {"above_in_row", s.watchdog.above_in_row},
                         {"rollbacks", s.watchdog.rollbacks},
                         {"skipped", s.watchdog.skipped},
                         {"recent", s.watchdog.recent}};
  const json out = {{"step", s.step},
                    {"trained_tokens", s.trained_tokens},
                    {"watchdog", watchdog},
                    {"masks", masks_json(s.masks)},
                    {"early_stopping", early_json(s.early)},
                    {"best_masks", masks_json(s.best_masks)},
                    {"selection", s.selection},
                    {"last_evaluation", s.last_evaluation},
                    {"base_loss", optional_json(s.base_loss)},
                    {"valid_loss", optional_json(s.valid_loss)},
                    {"best_loss", optional_json(s.best_loss)},
                    {"best_step", s.best_step},
                    {"branch_ratio", s.branch_ratio},
                    {"valid_losses", s.valid_losses},
                    {"train_losses", s.train_losses},
                    {"window_loss", s.window_loss},
                    {"window_updates", s.window_updates},
                    {"pass_loss", s.pass_loss},
                    {"pass_updates", s.pass_updates},
                    {"pass_tokens", s.pass_tokens},
                    {"recent_losses", s.recent_losses},
                    {"recent_norms", s.recent_norms},
                    {"grad_norms", s.grad_norms},
                    {"advised", s.advised}};
  return out.dump(1);
}

TrainState state_from_json(const std::string& text) try {
  const json in = json::parse(text);
  TrainState s;
  in.at("step").get_to(s.step);
  in.at("trained_tokens").get_to(s.trained_tokens);
  const json& watchdog = in.at("watchdog");
  watchdog.at("non_finite_in_row").get_to(s.watchdog.non_finite_in_row);
  watchdog.at("above_in_row").get_to(s.watchdog.above_in_row);
  watchdog.at("rollbacks").get_to(s.watchdog.rollbacks);
  watchdog.at("skipped").get_to(s.watchdog.skipped);
  watchdog.at("recent").get_to(s.watchdog.recent);
  s.masks = masks_value(in.at("masks"));
  // Checkpoints from before early stopping have neither, and their jobs did not ask for it.
  if (in.contains("early_stopping")) s.early = early_value(in.at("early_stopping"));
  if (in.contains("best_masks")) s.best_masks = masks_value(in.at("best_masks"));
  in.at("selection").get_to(s.selection);
  in.at("last_evaluation").get_to(s.last_evaluation);
  s.base_loss = optional_value(in.at("base_loss"));
  s.valid_loss = optional_value(in.at("valid_loss"));
  s.best_loss = optional_value(in.at("best_loss"));
  in.at("best_step").get_to(s.best_step);
  in.at("branch_ratio").get_to(s.branch_ratio);
  in.at("valid_losses").get_to(s.valid_losses);
  in.at("train_losses").get_to(s.train_losses);
  in.at("window_loss").get_to(s.window_loss);
  in.at("window_updates").get_to(s.window_updates);
  in.at("pass_loss").get_to(s.pass_loss);
  in.at("pass_updates").get_to(s.pass_updates);
  in.at("pass_tokens").get_to(s.pass_tokens);
  in.at("recent_losses").get_to(s.recent_losses);
  in.at("recent_norms").get_to(s.recent_norms);
  if (in.contains("grad_norms")) s.grad_norms = numbers_or_nan(in.at("grad_norms"));
  in.at("advised").get_to(s.advised);
  return s;
} catch (const nlohmann::json::exception& error) {
  throw std::runtime_error(std::string("[state_from_json] ") + error.what());
}

}  // namespace dex::train
