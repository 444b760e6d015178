#include "worker/train/selection.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/train/failure.h"
#include "worker/train/philox.h"

namespace dex::train {
namespace {

using nlohmann::json;

const char* name(evaluate::EntropyUnit unit) {
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

const char* name(evaluate::ContributionUnit unit) {
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

const char* name(evaluate::Reason reason) {
  switch (reason) {
    case evaluate::Reason::kNone:
      return "none";
    case evaluate::Reason::kEntropy:
      return "entropy";
    case evaluate::Reason::kContribution:
      return "contribution";
    case evaluate::Reason::kBoth:
      return "both";
  }
  return "";
}

size_t count(const evaluate::HeadSets& sets) {
  size_t total = 0;
  for (const auto& set : sets) total += set.size();
  return total;
}

// Explicit lists may end before the last layer: "one entry a layer that has any"
// (finetuning.proto).
evaluate::SelectionRule completed(evaluate::SelectionRule rule, int64_t layers) {
  if (rule.criterion == evaluate::Criterion::kExplicit &&
      static_cast<int64_t>(rule.heads.size()) <= layers) {
    rule.heads.resize(static_cast<size_t>(layers));
  }
  return rule;
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

std::vector<evaluate::Document> calibration_documents(const std::vector<Example>& examples,
                                                      const Calibration& calibration,
                                                      uint64_t seed) {
  auto order = permutation(static_cast<uint32_t>(examples.size()), seed, Site::kCalibration, 0);
  const auto wanted = static_cast<size_t>(calibration.seq_length);
  const auto length = [&](uint32_t index) { return std::min(wanted, examples[index].ids.size()); };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return length(a) > length(b); });
  order.resize(std::min(order.size(), static_cast<size_t>(calibration.n_sequences)));
  std::vector<evaluate::Document> documents;
  for (const uint32_t index : order) {
    documents.push_back({std::span(examples[index].ids).first(length(index)),
                         std::span(examples[index].weights).first(length(index))});
  }
  return documents;
}

Selection select(const JobSpec& spec, const model::Llama& llama,
                 const model::Adaptation& adaptation, const std::vector<Example>& examples,
                 const evaluate::HeadSets* present, kernels::LinearCrossEntropy& cross_entropy,
                 const std::function<void()>& between) {
  const auto layers = static_cast<int32_t>(llama.config().layers),
             heads = static_cast<int32_t>(llama.config().heads);
  const evaluate::SelectionRule rule = completed(spec.heads, layers);
  Selection out;
  evaluate::HeadScoreOptions options;
  options.skip_rows = spec.calibration.skip_rows;
  options.entropy = evaluate::needs_entropy(rule);
  options.importance = evaluate::needs_importance(rule);
  if (options.entropy || options.importance) {
    out.scores = evaluate::measure_heads(
        llama, adaptation, calibration_documents(examples, spec.calibration, spec.seed), options,
        cross_entropy, between);
  }
  try {
    out.heads = present ? evaluate::reselect_heads(rule, out.scores, *present, heads)
                        : evaluate::select_heads(rule, out.scores, layers, heads);
  } catch (const std::runtime_error& error) {
    throw bad_spec("dex.head_selection", error.what());
  }
  out.ratio = evaluate::selected_ratio(out.heads, heads);
  return out;
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
  json chosen_by = json::array();
  const bool threshold = spec.heads.criterion == evaluate::Criterion::kThreshold;
  if (threshold) {
    for (const auto& layer : evaluate::reasons(spec.heads, selection.scores)) {
      json row = json::array();
      for (const auto reason : layer) row.push_back(name(reason));
      chosen_by.push_back(row);
    }
  }
  json rule = {{"criterion", name(spec.heads.criterion)}, {"fraction", spec.heads.fraction}};
  if (threshold) {
    rule = {{"criterion", "THRESHOLD"},
            {"tau", spec.heads.tau},
            {"eta", spec.heads.eta},
            {"entropy_unit", name(spec.heads.entropy_unit)},
            {"contribution_unit", name(spec.heads.contribution_unit)}};
  }
  const json calibration = {{"source", "training_file"},
                            {"n_sequences", spec.calibration.n_sequences},
                            {"seq_length", spec.calibration.seq_length},
                            {"skip_rows", selection.scores.skip_rows},
                            {"normalized_because_short", selection.scores.short_sequences},
                            {"seed", spec.seed}};
  const json out = {{"step", step},
                    {"rule", rule},
                    {"calibration", calibration},
                    {"entropy", selection.scores.entropy_nats},
                    {"importance", selection.scores.importance},
                    {"selected", selection.heads},
                    {"selected_ratio", selection.ratio},
                    {"chosen_by", chosen_by}};
  return out.dump();
}

}  // namespace dex::train
