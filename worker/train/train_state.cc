#include "worker/train/train_state.h"

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "services/base/json_depth.h"

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

// A whole number that its place can hold: nlohmann would cast what is none, and what is too large.
template <std::integral Number>
Number whole_value(const json& value, const std::string& key) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Number>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<Number>(value.get<int64_t>());
  if (!fits) {
    throw std::runtime_error("[state_from_json] " + key +
                             " must be a whole number in range, found " +
                             value.dump().substr(0, 60));
  }
  return value.get<Number>();
}

template <std::integral Number>
void get_whole(const json& in, const char* key, Number& out) {
  out = whole_value<Number>(in.at(key), key);
}

HeadMasks::Table masks_value(const json& value) {
  HeadMasks::Table table;
  for (const json& layer : value) {
    std::vector<HeadMasks::Head> heads;
    for (const json& head : layer) {
      heads.push_back({head.at(0).get<double>(), head.at(1).get<double>(),
                       whole_value<int64_t>(head.at(2), "masks")});
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
  get_whole(in, "evaluations", s.evaluations);
  get_whole(in, "in_row", s.in_row);
  s.reference = optional_value(in.at("reference"));
  s.best_loss = optional_value(in.at("best_loss"));
  get_whole(in, "best_step", s.best_step);
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
  if (base::nests_deeper(text))
    throw std::runtime_error("[state_from_json] nested deeper than " +
                             std::to_string(base::kDeepestJson));
  const json in = json::parse(text);
  TrainState s;
  get_whole(in, "step", s.step);
  get_whole(in, "trained_tokens", s.trained_tokens);
  const json& watchdog = in.at("watchdog");
  get_whole(watchdog, "non_finite_in_row", s.watchdog.non_finite_in_row);
  get_whole(watchdog, "above_in_row", s.watchdog.above_in_row);
  get_whole(watchdog, "rollbacks", s.watchdog.rollbacks);
  get_whole(watchdog, "skipped", s.watchdog.skipped);
  watchdog.at("recent").get_to(s.watchdog.recent);
  s.masks = masks_value(in.at("masks"));
  // Checkpoints from before early stopping have neither, and their jobs did not ask for it.
  if (in.contains("early_stopping")) s.early = early_value(in.at("early_stopping"));
  if (in.contains("best_masks")) s.best_masks = masks_value(in.at("best_masks"));
  in.at("selection").get_to(s.selection);
  get_whole(in, "last_evaluation", s.last_evaluation);
  s.base_loss = optional_value(in.at("base_loss"));
  s.valid_loss = optional_value(in.at("valid_loss"));
  s.best_loss = optional_value(in.at("best_loss"));
  get_whole(in, "best_step", s.best_step);
  in.at("branch_ratio").get_to(s.branch_ratio);
  in.at("valid_losses").get_to(s.valid_losses);
  in.at("train_losses").get_to(s.train_losses);
  in.at("window_loss").get_to(s.window_loss);
  get_whole(in, "window_updates", s.window_updates);
  in.at("pass_loss").get_to(s.pass_loss);
  get_whole(in, "pass_updates", s.pass_updates);
  get_whole(in, "pass_tokens", s.pass_tokens);
  in.at("recent_losses").get_to(s.recent_losses);
  in.at("recent_norms").get_to(s.recent_norms);
  if (in.contains("grad_norms")) s.grad_norms = numbers_or_nan(in.at("grad_norms"));
  in.at("advised").get_to(s.advised);
  return s;
} catch (const nlohmann::json::exception& error) {
  throw std::runtime_error(std::string("[state_from_json] ") + error.what());
}

}  // namespace dex::train
