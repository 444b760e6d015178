#include "worker/train/selection.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "worker/train/failure.h"
#include "worker/train/philox.h"

namespace dex::train {
namespace {

// A row this many times as long as skip_rows is as good as any longer one: three quarters of its
// attention rows are counted.
constexpr int64_t kLongEnough = 4;

// Explicit lists may end before the last layer: "one entry a layer that has any"
// (finetuning.proto).
evaluate::SelectionRule completed(evaluate::SelectionRule rule, int64_t layers) {
  if (rule.criterion == evaluate::Criterion::kExplicit &&
      static_cast<int64_t>(rule.heads.size()) <= layers) {
    rule.heads.resize(static_cast<size_t>(layers));
  }
  return rule;
}

evaluate::HeadScoreOptions score_options(const evaluate::SelectionRule& rule,
                                         const Calibration& calibration) {
  evaluate::HeadScoreOptions options;
  options.skip_rows = calibration.skip_rows;
  options.entropy = evaluate::needs_entropy(rule);
  options.importance = evaluate::needs_importance(rule);
  return options;
}

// Layers below hyperparameters.first_layer are the base's, whatever the rule says of their heads.
void clear_below(int64_t first_layer, evaluate::HeadSets& heads) {
  for (size_t l = 0; l < heads.size() && static_cast<int64_t>(l) < first_layer; ++l)
    heads[l].clear();
}

// What measure_heads could not measure at all, in words of the spec; empty: it can.
std::string too_short(const std::vector<evaluate::Document>& documents,
                      const evaluate::HeadScoreOptions& options, const Calibration& calibration) {
  const auto some = [&](const auto& holds) {
    return std::any_of(documents.begin(), documents.end(), holds);
  };
  if (options.entropy && !some([](const auto& document) { return document.ids.size() > 1; }))
    return "no calibration row has more than one token: give longer rows";
  // The first token is predicted from nothing, so its weight counts for nothing.
  const auto has_label = [](const evaluate::Document& document) {
    const auto predicted = document.weights.subspan(std::min<size_t>(1, document.weights.size()));
    return std::any_of(predicted.begin(), predicted.end(), [](float weight) { return weight > 0; });
  };
  if (options.importance && !some(has_label)) {
    return "no calibration row is trained on within its first " +
           std::to_string(calibration.seq_length) +
           " tokens, and importance needs that: raise seq_length, or take criterion ENTROPY";
  }
  return "";
}

// A tau in nats can't be compared with H/ln(i+1), which is all that rows as short as these have
// (method.md §4.1). Empty: it is not.
std::string nats_of_short_rows(const evaluate::SelectionRule& rule,
                               const std::vector<evaluate::Document>& documents,
                               const Calibration& calibration) {
  const bool nats = rule.criterion == evaluate::Criterion::kThreshold &&
                    rule.entropy_unit == evaluate::EntropyUnit::kNats;
  if (!nats ||
      evaluate::first_counted_row(documents, calibration.skip_rows) >= calibration.skip_rows)
    return "";
  return "NATS needs a calibration row longer than skip_rows " +
         std::to_string(calibration.skip_rows) +
         ", and there is none, so that only H/ln(i+1) could be measured: give longer rows, a "
         "smaller skip_rows, or NORMALIZED with a tau between 0 and 1";
}

}  // namespace

std::vector<evaluate::Document> calibration_documents(const std::vector<Example>& examples,
                                                      const Calibration& calibration,
                                                      uint64_t seed) {
  auto order = permutation(static_cast<uint32_t>(examples.size()), seed, Site::kCalibration, 0);
  const auto wanted = static_cast<size_t>(calibration.seq_length);
  const auto length = [&](uint32_t index) { return std::min(wanted, examples[index].ids.size()); };
  // The drawn order stays among rows that are long enough; shorter ones follow, longest first.
  const auto enough = std::min(
      wanted, static_cast<size_t>(std::max<int64_t>(2, kLongEnough * calibration.skip_rows)));
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::min(enough, length(a)) > std::min(enough, length(b));
  });
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
  const auto options = score_options(rule, spec.calibration);
  if (options.entropy || options.importance) {
    const auto documents = calibration_documents(examples, spec.calibration, spec.seed);
    if (const auto problem = too_short(documents, options, spec.calibration); !problem.empty())
      throw bad_spec("dex.head_selection.calibration", problem);
    if (const auto problem = nats_of_short_rows(rule, documents, spec.calibration);
        !problem.empty())
      throw bad_spec("dex.head_selection.entropy_unit", problem);
    out.scores =
        evaluate::measure_heads(llama, adaptation, documents, options, cross_entropy, between);
  }
  try {
    out.heads = present ? evaluate::reselect_heads(rule, out.scores, *present, heads)
                        : evaluate::select_heads(rule, out.scores, layers, heads);
  } catch (const std::runtime_error& error) {
    throw bad_spec("dex.head_selection", error.what());
  }
  clear_below(spec.dex.first_layer, out.heads);
  out.heads_a_layer = heads;
  out.ratio = evaluate::selected_ratio(out.heads, heads);
  return out;
}

bool keep_some(const JobSpec& spec, const evaluate::HeadSets& present, Selection& selection) {
  if (spec.dex.train != model::Train::kDexOnly || spec.dex.soft_floor > 0 || selection.ratio > 0)
    return false;
  selection.heads = present;
  selection.ratio = evaluate::selected_ratio(present, selection.heads_a_layer);
  return true;
}

double overlap(const evaluate::HeadSets& a, const evaluate::HeadSets& b) {
  size_t both = 0, either = 0;
  for (size_t l = 0; l < a.size(); ++l) {
    std::vector<int32_t> common;
    std::set_intersection(a[l].begin(), a[l].end(), b[l].begin(), b[l].end(),
                          std::back_inserter(common));
    both += common.size();
    either += a[l].size() + b[l].size() - common.size();
  }
  return either == 0 ? 1.0 : static_cast<double>(both) / static_cast<double>(either);
}

std::optional<double> selection_stability(const JobSpec& spec, const model::Llama& llama,
                                          const std::vector<Example>& examples,
                                          kernels::LinearCrossEntropy& cross_entropy,
                                          const std::function<void()>& between) {
  const auto options = score_options(spec.heads, spec.calibration);
  if (!options.entropy && !options.importance) return std::nullopt;
  const auto documents = calibration_documents(examples, spec.calibration, spec.seed);
  std::vector<evaluate::Document> halves[2];
  for (size_t i = 0; i < documents.size(); ++i) halves[i % 2].push_back(documents[i]);
  evaluate::HeadSets chosen[2];
  for (int half = 0; half < 2; ++half) {
    if (!too_short(halves[half], options, spec.calibration).empty() ||
        !nats_of_short_rows(spec.heads, halves[half], spec.calibration).empty())
      return std::nullopt;
    const auto scores =
        evaluate::measure_heads(llama, {}, halves[half], options, cross_entropy, between);
    chosen[half] =
        evaluate::select_heads(spec.heads, scores, static_cast<int32_t>(llama.config().layers),
                               static_cast<int32_t>(llama.config().heads));
    clear_below(spec.dex.first_layer, chosen[half]);
  }
  return overlap(chosen[0], chosen[1]);
}

}  // namespace dex::train
