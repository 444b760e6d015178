#include "worker/train/selection.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/train/failure.h"
#include "worker/train/philox.h"

namespace dex::train {
namespace {

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
  out.heads_a_layer = heads;
  out.ratio = evaluate::selected_ratio(out.heads, heads);
  return out;
}

}  // namespace dex::train
