#include "worker/train/selection_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/evaluate/head_pictures.h"
#include "worker/train/advice.h"

namespace dex::train {
namespace {

using nlohmann::json;

const char* unit_name(evaluate::EntropyUnit unit) {
  switch (unit) {
    case evaluate::EntropyUnit::kNats:
      return "NATS";
    case evaluate::EntropyUnit::kNormalized:
      return "NORMALIZED";
    case evaluate::EntropyUnit::kZscore:
      return "ZSCORE";
    case evaluate::EntropyUnit::kQuantile:
      return "QUANTILE";
  }
  return "";
}

const char* unit_name(evaluate::ContributionUnit unit) {
  switch (unit) {
    case evaluate::ContributionUnit::kL2norm:
      return "L2NORM";
    case evaluate::ContributionUnit::kShare:
      return "SHARE";
    case evaluate::ContributionUnit::kRelmax:
      return "RELMAX";
  }
  return "";
}

size_t count(const evaluate::HeadSets& sets) {
  size_t total = 0;
  for (const auto& set : sets) total += set.size();
  return total;
}

json rule_json(const evaluate::SelectionRule& rule) {
  json out = {{"criterion", name(rule.criterion)}};
  switch (rule.criterion) {
    case evaluate::Criterion::kEntropy:
    case evaluate::Criterion::kImportance:
      out["fraction"] = rule.fraction;
      break;
    case evaluate::Criterion::kThreshold:
      out["tau"] = rule.tau;
      out["eta"] = rule.eta;
      out["entropy_unit"] = unit_name(rule.entropy_unit);
      out["contribution_unit"] = unit_name(rule.contribution_unit);
      break;
    case evaluate::Criterion::kExplicit:
      out["heads"] = rule.heads;
      break;
    case evaluate::Criterion::kAll:
      break;
  }
  return out;
}

// Why a chosen head was chosen: by threshold the condition that held, else the criterion itself.
const char* reason(const evaluate::SelectionRule& rule, evaluate::Reason threshold) {
  switch (rule.criterion) {
    case evaluate::Criterion::kEntropy:
      return "entropy";
    case evaluate::Criterion::kImportance:
      return "contribution";
    case evaluate::Criterion::kAll:
      return "all";
    case evaluate::Criterion::kExplicit:
      return "explicit";
    case evaluate::Criterion::kThreshold:
      break;
  }
  switch (threshold) {
    case evaluate::Reason::kEntropy:
      return "entropy";
    case evaluate::Reason::kContribution:
      return "contribution";
    case evaluate::Reason::kBoth:
      return "both";
    case evaluate::Reason::kNone:
      break;
  }
  return "kept";  // method.md §3.4: below the threshold, but not by the margin
}

// [L][H]: the reason of each chosen head, null for the others.
json chosen_by(const evaluate::SelectionRule& rule, const Selection& selection) {
  const auto thresholds = evaluate::reasons(rule, selection.scores);
  json out = json::array();
  for (size_t l = 0; l < selection.heads.size(); ++l) {
    json row(std::vector<json>(static_cast<size_t>(selection.heads_a_layer), nullptr));
    for (const int32_t head : selection.heads[l]) {
      const auto h = static_cast<size_t>(head);
      row[h] = reason(rule, thresholds.empty() ? evaluate::Reason::kNone : thresholds[l][h]);
    }
    out.push_back(row);
  }
  return out;
}

json ratios(const Selection& selection) {
  json out = json::array();
  for (const auto& set : selection.heads)
    out.push_back(static_cast<double>(set.size()) / selection.heads_a_layer);
  return out;
}

}  // namespace

const char* name(evaluate::Criterion criterion) {
  switch (criterion) {
    case evaluate::Criterion::kEntropy:
      return "ENTROPY";
    case evaluate::Criterion::kImportance:
      return "IMPORTANCE";
    case evaluate::Criterion::kThreshold:
      return "THRESHOLD";
    case evaluate::Criterion::kAll:
      return "ALL";
    case evaluate::Criterion::kExplicit:
      return "EXPLICIT";
  }
  return "";
}

std::string selection_event(const JobSpec& spec, const Selection& selection, int64_t step) {
  json layers = json::array();
  for (size_t l = 0; l < selection.heads.size(); ++l) {
    json layer = {{"selected", selection.heads[l]}};
    if (!selection.scores.entropy_nats.empty()) layer["entropy"] = selection.scores.entropy_nats[l];
    if (!selection.scores.importance.empty()) layer["importance"] = selection.scores.importance[l];
    layers.push_back(layer);
  }
  const json out = {{"criterion", name(spec.heads.criterion)},
                    {"selected_heads", count(selection.heads)},
                    {"selected_ratio", selection.ratio},
                    {"layers", layers},
                    {"step", step}};
  return out.dump();
}

std::string selection_report(const JobSpec& spec, const Selection& selection, int64_t step) {
  const evaluate::HeadScores& scores = selection.scores;
  json calibration = nullptr;  // nothing is measured for ALL and EXPLICIT
  if (scores.sequences > 0) {
    calibration = {{"source", "training_file"},
                   {"n_sequences", spec.calibration.n_sequences},
                   {"seq_length", spec.calibration.seq_length},
                   {"sequences", scores.sequences},
                   {"tokens", scores.tokens},
                   {"skip_rows", scores.skip_rows},
                   {"normalized_because_short", scores.short_sequences},
                   {"seed", spec.seed}};
  }
  json warnings = json::array();
  const auto warn = [&](const Advice& advice) {
    warnings.push_back({{"topic", advice.topic},
                        {"evidence", advice.evidence},
                        {"suggestion", advice.suggestion}});
  };
  if (const auto share = selection_share(spec.heads, scores, selection.ratio)) warn(*share);
  for (const Advice& advice : calibration_advice(spec.calibration, scores)) warn(advice);
  const json out = {{"step", step},
                    {"rule", rule_json(spec.heads)},
                    {"calibration", calibration},
                    {"entropy_unit", scores.short_sequences ? "normalized" : "nats"},
                    {"entropy", scores.entropy_nats},
                    {"importance", scores.importance},
                    {"selected", selection.heads},
                    {"selected_ratio", selection.ratio},
                    {"selected_ratio_by_layer", ratios(selection)},
                    {"chosen_by", chosen_by(spec.heads, selection)},
                    {"warnings", warnings}};
  return out.dump();
}

std::string selection_picture(const std::string& log) {
  const json reports = json::parse(log);
  if (reports.empty()) return "";
  const json& last = reports.back();
  const auto entropy = last.at("entropy").get<evaluate::HeadTable>();
  const auto importance = last.at("importance").get<evaluate::HeadTable>();
  const auto selected = last.at("selected").get<evaluate::HeadSets>();
  std::vector<evaluate::PicturedScore> scores;
  if (!entropy.empty())
    scores.push_back({"Entropy", last.at("entropy_unit").get<std::string>(), entropy});
  if (!importance.empty()) scores.push_back({"Importance", "", importance});
  const auto step = last.at("step").get<int64_t>();
  const std::string title = step == 0 ? "Heads chosen before training"
                                      : "Heads chosen before step " + std::to_string(step + 1);
  return evaluate::head_selection_svg(title, scores, selected,
                                      static_cast<int32_t>(last.at("chosen_by").at(0).size()));
}

}  // namespace dex::train
