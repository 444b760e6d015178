#include "worker/evaluate/head_analysis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "services/text/utf8.h"
#include "worker/evaluate/head_pictures.h"
#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

enum : int32_t {
  kEntropyScore,
  kImportanceScore,
  kCosineDistance,
  kCkaScore,
  kSparsityShare,
  kNegativeShare,
  kNegativeMass,
  kBelowZero,
  kBelowHalf,
  kEigenvalue,
  kNegativeEigenvalues,
  kEigenvalueRange
};

// Sequences are drawn from so much of the text, which holds thousands of them: tokenising a large
// file would take longer than the analysis.
constexpr size_t kMostTextBytes = 4 << 20;

Dims place(size_t layer, size_t head) {
  return {{"layer", std::to_string(layer)}, {"head", std::to_string(head)}};
}

void observe_heads(int32_t metric, int64_t item, const HeadTable& table, double weight,
                   std::vector<Observation>& out) {
  for (size_t l = 0; l < table.size(); ++l) {
    for (size_t h = 0; h < table[l].size(); ++h)
      out.push_back({metric, item, place(l, h), table[l][h] * weight, weight});
  }
}

void observe_pairs(int32_t metric, int64_t item, const std::vector<HeadTable>& tables,
                   std::vector<Observation>& out) {
  for (size_t l = 0; l < tables.size(); ++l) {
    for (size_t h = 0; h < tables[l].size(); ++h) {
      for (size_t g = h + 1; g < tables[l][h].size(); ++g) {
        const double value = tables[l][h][g];
        if (!std::isfinite(value)) continue;
        Dims dims = place(l, h);
        dims.emplace_back("other", std::to_string(g));
        out.push_back({metric, item, std::move(dims), value, 1});
      }
    }
  }
}

// One number a head, or a layer; none where no branch acts.
void observe_removed(int32_t metric, int64_t item, const HeadTable& table, bool by_layer,
                     std::vector<Observation>& out) {
  for (size_t l = 0; l < table.size(); ++l) {
    for (size_t h = 0; h < table[l].size(); ++h) {
      if (!std::isfinite(table[l][h])) continue;
      Dims dims = place(l, h);
      if (by_layer) dims.pop_back();
      out.push_back({metric, item, std::move(dims), table[l][h], 1});
    }
  }
}

void observe_all(const HeadMeasures& found, int64_t item, size_t tokens,
                 std::vector<Observation>& out) {
  observe_heads(kEntropyScore, item, found.entropy, 1, out);
  observe_heads(kImportanceScore, item, found.importance, 1, out);
  observe_pairs(kCosineDistance, item, found.cosine, out);
  observe_pairs(kCkaScore, item, found.cka, out);
  // Shares of the entries that a causal map has, so that longer sequences count for more.
  const double entries = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  observe_heads(kSparsityShare, item, found.sparsity, entries, out);
  observe_heads(kNegativeShare, item, found.negative_share, entries, out);
  observe_heads(kNegativeMass, item, found.negative_mass, 1, out);
  observe_removed(kBelowZero, item, found.removed_below_zero, found.removed_by_layer, out);
  observe_removed(kBelowHalf, item, found.removed_below_half, found.removed_by_layer, out);
  if (!found.hessian) return;
  out.push_back({kEigenvalue, item, {}, *found.hessian, 1});
  out.push_back({kNegativeEigenvalues, item, {}, *found.hessian < 0 ? 1.0 : 0.0, 1});
}

std::string range_end(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

// Where range `bin` begins, and the one before it ends.
std::string range_begin(const Histogram& bars, size_t bin) {
  const double width = (bars.high - bars.low) / static_cast<double>(bars.counts.size());
  return range_end(bars.low + width * static_cast<double>(bin));
}

// Eigenvalues that differ by less than is printed would give ranges of the same name.
bool ranges_merge(const Histogram& bars) {
  for (size_t bin = 0; bin < bars.counts.size(); ++bin) {
    if (range_begin(bars, bin) == range_begin(bars, bin + 1)) return true;
  }
  return false;
}

// Each sequence is in one range and in no other: the value of a range is the share that is in it.
void observe_ranges(const std::vector<double>& eigenvalues, std::vector<Observation>& out) {
  Histogram bars = histogram(eigenvalues, kEigenvalueBins);
  if (ranges_merge(bars)) bars = histogram(eigenvalues, 1);
  for (size_t bin = 0; bin < bars.counts.size(); ++bin) {
    const Dims range = {{"from", range_begin(bars, bin)}, {"to", range_begin(bars, bin + 1)}};
    for (size_t i = 0; i < eigenvalues.size(); ++i) {
      const double inside = bin_of(bars, eigenvalues[i]) == bin ? 1 : 0;
      out.push_back({kEigenvalueRange, static_cast<int64_t>(i), range, inside, 1});
    }
  }
}

// n/d of every sequence's CKA (method.md §4.4), and what it means where it is small.
std::string similarity_note(const std::vector<double>& positions_per_dimension) {
  const auto [least, most] = std::ranges::minmax(positions_per_dimension);
  std::string out = "cka: n/d, a sequence's tokens by a head's width, is " + range_end(least);
  if (least < most) out += " to " + range_end(most);
  if (least < kFewPositions) {
    out +=
        "; below 10 the value of one sequence means little: take a larger seq_length, or "
        "compare means over many sequences only";
  }
  return out;
}

bool asks_for_any(const HeadQuestion& question) {
  return question.entropy || question.importance || question.cosine || question.cka ||
         question.sparsity || question.hessian;
}

}  // namespace

const std::vector<std::string>& head_metrics() {
  static const std::vector<std::string> kNames = {"entropy", "importance", "cosine_distance",
                                                  "cka",     "sparsity",   "hessian"};
  return kNames;
}

void ask_for(const std::string& metric, HeadQuestion& question) {
  bool* const asked[] = {&question.entropy, &question.importance, &question.cosine,
                         &question.cka,     &question.sparsity,   &question.hessian};
  const auto& names = head_metrics();
  const auto at = std::ranges::find(names, metric);
  if (at == names.end()) throw std::runtime_error("'" + metric + "' is no metric of heads");
  *asked[at - names.begin()] = true;
}

HeadAnalysis::HeadAnalysis(Options options, TextFile file)
    : options_(options), file_(std::move(file)) {
  if (!asks_for_any(options_.question))
    throw std::runtime_error(
        "no metric of heads is asked for; name one of entropy, importance, "
        "cosine_distance, cka, sparsity, hessian");
}

std::vector<Metric> HeadAnalysis::metrics() const {
  const auto metric = [](const char* name, std::vector<std::vector<std::string>> groupings) {
    Metric out;
    out.name = name;
    out.interval = IntervalKind::kBootstrap;
    out.judged = false;
    out.groupings = std::move(groupings);
    return out;
  };
  const std::vector<std::vector<std::string>> heads = {{}, {"layer"}, {"layer", "head"}};
  const std::vector<std::vector<std::string>> pairs = {{}, {"layer"}, {"layer", "head", "other"}};
  Metric negative = metric("hessian_negative_share", {{}});
  Metric ranges = metric("hessian_histogram", {{"from", "to"}});
  for (Metric* share : {&negative, &ranges}) share->interval = IntervalKind::kWilson;
  // In the order of the enumeration above.
  return {metric("entropy", heads),
          metric("importance", heads),
          metric("cosine_distance", pairs),
          metric("cka", pairs),
          metric("sparsity", heads),
          metric("negative_share", heads),
          metric("negative_mass", heads),
          metric("directions_below_zero", heads),
          metric("directions_below_half", heads),
          metric("hessian_eigenvalue", {{}}),
          negative,
          ranges};
}

HeadAnalysis::Sequences HeadAnalysis::sequences_for(const Subject& subject,
                                                    const Hooks& hooks) const {
  const auto length = static_cast<size_t>(options_.length);
  Sequences pieces;
  size_t left = kMostTextBytes;
  for (const TextDocument& document : file_.documents) {
    if (left == 0) break;
    const size_t bytes = document.text.size() <= left ? document.text.size()
                                                      : text::utf8_prefix(document.text, left);
    const auto tokens = subject.encode(std::string_view(document.text).substr(0, bytes));
    left = document.text.size() <= left ? left - bytes : 0;
    for (size_t begin = 0; begin < tokens.size(); begin += length) {
      const size_t end = std::min(begin + length, tokens.size());
      // A single token predicts nothing and its map has one entry.
      if (end - begin > 1)
        pieces.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                            tokens.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  if (pieces.empty())
    throw std::runtime_error(
        "the text has no sequence of two tokens on which heads could be "
        "measured; give a longer text");
  if (left == 0) hooks.say("sequences are drawn from the first 4 MiB of the text");
  auto order = RandomStream(options_.seed, Draw::kSequences)
                   .permutation(static_cast<uint32_t>(pieces.size()));
  std::ranges::stable_sort(
      order, [&](uint32_t a, uint32_t b) { return pieces[a].size() > pieces[b].size(); });
  order.resize(std::min(order.size(), static_cast<size_t>(options_.sequences)));
  Sequences out;
  for (const uint32_t index : order) out.push_back(std::move(pieces[index]));
  return out;
}

HeadQuestion HeadAnalysis::question_for(const Sequences& sequences, const Hooks& hooks) const {
  HeadQuestion question = options_.question;
  question.skip_rows = std::max(1, question.skip_rows);  // row 0 has one entry and says nothing
  if (static_cast<int32_t>(sequences.front().size()) > question.skip_rows) return question;
  if (question.entropy || question.cosine) {
    hooks.say("no sequence is longer than skip_rows " + std::to_string(question.skip_rows) +
              ": rows from 1 on are counted, and entropy is H/ln(i+1)");
  }
  question.skip_rows = 1;
  question.normalized = true;
  return question;
}

void HeadAnalysis::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  if (options_.length > subject.trained_context()) {
    throw std::runtime_error("seq_length " + std::to_string(options_.length) +
                             " is beyond the model's context of " +
                             std::to_string(subject.trained_context()) + " tokens");
  }
  const Sequences sequences = sequences_for(subject, hooks);
  const HeadQuestion asked = question_for(sequences, hooks);
  size_t tokens = 0;
  for (const auto& sequence : sequences) tokens += sequence.size();
  hooks.say(std::to_string(sequences.size()) + " sequences with " + std::to_string(tokens) +
            " tokens were measured, " + std::to_string(options_.sequences) + " of " +
            std::to_string(options_.length) + " were asked for; heads are measured in fp32");
  const auto count = static_cast<int64_t>(sequences.size());
  std::vector<double> eigenvalues, positions_per_dimension;
  int64_t unsettled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto& sequence = sequences[static_cast<size_t>(i)];
    HeadQuestion question = asked;
    if (static_cast<int32_t>(sequence.size()) <= question.skip_rows)
      question.entropy = question.cosine = false;  // it has no row that counts
    const HeadMeasures found = subject.measure_heads(sequence, question, hooks.stop);
    observe_all(found, i, sequence.size(), out);
    if (found.entropy_of_magnitudes) hooks.say(subject.label() + ": " + kSignedEntropyNote);
    if (!found.cka.empty()) positions_per_dimension.push_back(found.positions_per_dimension);
    if (found.hessian) eigenvalues.push_back(*found.hessian);
    if (found.hessian && !found.hessian_settled) ++unsettled;
    hooks.report(subject, i + 1, count);
  }
  if (!positions_per_dimension.empty()) hooks.say(similarity_note(positions_per_dimension));
  if (!eigenvalues.empty()) observe_ranges(eigenvalues, out);
  if (unsettled > 0) hooks.say(subject.label() + ": " + unsettled_note(unsettled, count));
}

}  // namespace dex::evaluate
