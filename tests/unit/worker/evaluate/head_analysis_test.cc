#include "worker/evaluate/head_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/worker/evaluate/fake_subject.h"

namespace dex::evaluate {
namespace {

using ::testing::Contains;
using ::testing::Each;
using testing::FakeSubject;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run;
using ::testing::StartsWith;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Two layers of two heads whose numbers follow from a document's length n alone.
class HeadedSubject final : public FakeSubject {
 public:
  using FakeSubject::FakeSubject;
  HeadMeasures measure_heads(std::span<const int32_t> tokens, const HeadQuestion& question,
                             const std::stop_token& stop) override {
    if (stop.stop_requested()) throw Stopped();
    lengths.push_back(static_cast<int64_t>(tokens.size()));
    questions.push_back(question);
    const auto n = static_cast<double>(tokens.size());
    HeadMeasures out;
    if (question.entropy) out.entropy = {{n + more, 2 * n}, {3 * n, 4 * n}};
    if (question.importance) out.importance = {{1, 2}, {3, 4}};
    if (question.cosine) out.cosine = {{{0, n}, {n, 0}}, {{0, 2 * n}, {2 * n, 0}}};
    if (question.cka) {
      out.cka = {{{1, 0.5}, {0.5, 1}}, {{1, kNone}, {kNone, 1}}};
      out.positions_per_dimension = n / width;
    }
    if (question.sparsity) {
      out.sparsity = {{n > 10 ? 1.0 : 0.0, 0.5}, {0, 0}};
      out.negative_share = {{n > 10 ? 1.0 : 0.0, 0}, {0, 0}};
      out.negative_mass = {{0, 0}, {0, 0.25}};
      out.removed_below_zero = removed;
      out.removed_below_half = removed;
      out.removed_by_layer = !removed.empty() && removed[0].size() == 1;
    }
    out.entropy_of_magnitudes = signed_maps && question.entropy;
    if (question.hessian) {
      out.hessian = n > 10 ? long_eigenvalue : 3.0;
      out.hessian_settled = n > 10;
    }
    return out;
  }
  double more = 0;              // of the first head
  double width = 1;             // of a head
  double long_eigenvalue = -2;  // of sequences of more than 10 tokens
  HeadTable removed;
  bool signed_maps = false;
  std::vector<int64_t> lengths;
  std::vector<HeadQuestion> questions;
};

// One document a row, tokens are bytes.
TextFile texts_of(const std::vector<size_t>& lengths) {
  TextFile out;
  for (const size_t length : lengths)
    out.documents.push_back({.line = 1, .text = std::string(length, 'x')});
  return out;
}

const ResultRow* find_row(const Evaluation& found, const std::string& metric, const Dims& dims,
                          const std::string& subject = "base") {
  for (const ResultRow& row : found.rows) {
    if (row.metric == metric && row.dims == dims && row.subject == subject) return &row;
  }
  return nullptr;
}
double value(const Evaluation& found, const std::string& metric, const Dims& dims) {
  const ResultRow* row = find_row(found, metric, dims);
  return row == nullptr ? kNone : row->value;
}

HeadAnalysis::Options small() {
  HeadAnalysis::Options options;
  options.length = 16;
  options.question.skip_rows = 2;
  return options;
}

TEST(HeadAnalysisTest, ValuesAreMeansOverSequencesByHeadByLayerAndOverAll) {
  HeadedSubject base;
  HeadAnalysis task(small(), texts_of({8, 12}));
  const Evaluation found = run(task, {&base});
  EXPECT_DOUBLE_EQ(value(found, "entropy", {{"layer", "1"}, {"head", "0"}}), 30);
  EXPECT_DOUBLE_EQ(value(found, "entropy", {{"layer", "0"}}), 15);
  EXPECT_DOUBLE_EQ(value(found, "entropy", {}), 25);
  EXPECT_DOUBLE_EQ(value(found, "importance", {}), 2.5);
  EXPECT_DOUBLE_EQ(value(found, "cosine_distance", {{"layer", "1"}, {"head", "0"}, {"other", "1"}}),
                   20);
  EXPECT_DOUBLE_EQ(value(found, "cosine_distance", {}), 15);
  // A pair without a value has no row and no part in the mean.
  EXPECT_DOUBLE_EQ(value(found, "cka", {}), 0.5);
  EXPECT_EQ(find_row(found, "cka", {{"layer", "1"}}), nullptr);
  // Entries of causal maps: 8·9/2 = 36 with none, 12·13/2 = 78 with all below ε.
  EXPECT_DOUBLE_EQ(value(found, "sparsity", {{"layer", "0"}, {"head", "0"}}), 78.0 / (36 + 78));
  EXPECT_DOUBLE_EQ(value(found, "negative_share", {{"layer", "0"}, {"head", "0"}}),
                   78.0 / (36 + 78));
  EXPECT_DOUBLE_EQ(value(found, "negative_mass", {{"layer", "1"}, {"head", "1"}}), 0.25);
  EXPECT_EQ(find_row(found, "directions_below_zero", {}), nullptr) << "no branch has any";
  EXPECT_THAT(found.notes, Each(Not(HasSubstr("renormalised"))));
  EXPECT_EQ(find_row(found, "hessian_eigenvalue", {}), nullptr) << "only on request";
  const ResultRow& head = *find_row(found, "entropy", {{"layer", "0"}, {"head", "0"}});
  EXPECT_EQ(head.kind, IntervalKind::kBootstrap);
  EXPECT_EQ(head.n, 2) << "sequences are what is resampled";
  EXPECT_DOUBLE_EQ(head.interval->low, 8);
  EXPECT_DOUBLE_EQ(head.interval->high, 12);
  EXPECT_THAT(found.notes,
              Contains(HasSubstr("2 sequences with 20 tokens were measured, 8 of 16")));
}

TEST(HeadAnalysisTest, ADifferenceBeyondChanceIsNeitherBetterNorWorse) {
  HeadedSubject base, other("other");
  other.more = 5;
  HeadAnalysis task(small(), texts_of({8, 9, 10, 11, 12, 13, 14, 15}));
  const Evaluation found = run(task, {&base, &other});
  const Dims head = {{"layer", "0"}, {"head", "0"}};
  EXPECT_EQ(find_row(found, "entropy", head, "other")->comparison->verdict, Verdict::kDifferent);
  EXPECT_EQ(find_row(found, "importance", head, "other")->comparison->verdict,
            Verdict::kNoDifference);
  EXPECT_STREQ(name(Verdict::kDifferent), "DIFFERENT");
}

TEST(HeadAnalysisTest, TheLongestSequencesAreTakenAndLongTextsAreCut) {
  HeadedSubject base;
  HeadAnalysis::Options options = small();
  options.sequences = 3;
  HeadAnalysis task(options, texts_of({3, 40, 5}));
  run(task, {&base});
  EXPECT_EQ(base.lengths, (std::vector<int64_t>{16, 16, 8})) << "40 = 16 + 16 + 8";
}

TEST(HeadAnalysisTest, OnlyLongerSequencesHaveRowsThatCount) {
  HeadedSubject base;
  HeadAnalysis::Options options = small();
  options.question.skip_rows = 10;
  HeadAnalysis task(options, texts_of({12, 8}));
  const Evaluation found = run(task, {&base});
  EXPECT_TRUE(base.questions[0].entropy && base.questions[0].cosine);
  EXPECT_FALSE(base.questions[1].entropy || base.questions[1].cosine);
  EXPECT_TRUE(base.questions[1].importance && base.questions[1].cka);
  EXPECT_DOUBLE_EQ(value(found, "entropy", {{"layer", "0"}, {"head", "1"}}), 24);
}

TEST(HeadAnalysisTest, WhereNoneIsLongEnoughEntropyIsNormalizedAndThatIsSaid) {
  HeadedSubject base;
  HeadAnalysis::Options options = small();
  options.question.skip_rows = 12;
  HeadAnalysis task(options, texts_of({12, 8}));
  const Evaluation found = run(task, {&base});
  for (const HeadQuestion& question : base.questions) {
    EXPECT_TRUE(question.normalized && question.entropy);
    EXPECT_EQ(question.skip_rows, 1);
  }
  EXPECT_THAT(found.notes, Contains(HasSubstr("no sequence is longer than skip_rows 12")));
}

TEST(HeadAnalysisTest, EigenvaluesOnRequestWithTheShareOfNegativeOnes) {
  HeadedSubject base;
  HeadAnalysis::Options options = small();
  options.question = {};
  ask_for("hessian", options.question);
  HeadAnalysis task(options, texts_of({8, 12}));
  const Evaluation found = run(task, {&base});
  EXPECT_DOUBLE_EQ(value(found, "hessian_eigenvalue", {}), 0.5);
  EXPECT_DOUBLE_EQ(value(found, "hessian_negative_share", {}), 0.5);
  EXPECT_EQ(find_row(found, "hessian_negative_share", {})->kind, IntervalKind::kWilson);
  EXPECT_EQ(find_row(found, "entropy", {}), nullptr);
  EXPECT_THAT(found.notes, Contains("base: 1 of 2 Hessian eigenvalues did not settle: they are "
                                    "where the iteration stopped"));
}

// method.md §4.4: n/d is reported, and below 10 it is warned of.
TEST(HeadAnalysisTest, FeaturesOfFewPositionsAreWarnedOf) {
  const auto notes = [](HeadAnalysis::Options options, const std::vector<size_t>& lengths) {
    HeadedSubject base;
    base.width = 0.8;
    HeadAnalysis task(options, texts_of(lengths));
    return run(task, {&base}).notes;
  };
  EXPECT_THAT(notes(small(), {8, 12}),
              Contains(HasSubstr("cka: n/d, a sequence's tokens by a head's width, is 10 to 15")));
  EXPECT_THAT(notes(small(), {8, 12}), Each(Not(HasSubstr("means little"))));
  EXPECT_THAT(
      notes(small(), {6, 12}),
      Contains("cka: n/d, a sequence's tokens by a head's width, is 7.5 to 15; below 10 the "
               "value of one sequence means little: take a larger seq_length, or compare "
               "means over many sequences only"));
  EXPECT_THAT(notes(small(), {8, 8}), Contains(HasSubstr("head's width, is 10")));
  HeadAnalysis::Options entropy = small();
  entropy.question = {};
  ask_for("entropy", entropy.question);
  EXPECT_THAT(notes(entropy, {6, 12}), Each(Not(HasSubstr("cka"))));
}

// −2 and 3 in ten ranges of ½: the first and the last hold one of two sequences each.
TEST(HeadAnalysisTest, EigenvaluesAreCountedInRanges) {
  HeadedSubject base;
  HeadAnalysis::Options options = small();
  options.question = {};
  ask_for("hessian", options.question);
  HeadAnalysis task(options, texts_of({8, 12}));
  const Evaluation found = run(task, {&base});
  EXPECT_DOUBLE_EQ(value(found, "hessian_histogram", {{"from", "-2"}, {"to", "-1.5"}}), 0.5);
  EXPECT_DOUBLE_EQ(value(found, "hessian_histogram", {{"from", "-1.5"}, {"to", "-1"}}), 0);
  EXPECT_DOUBLE_EQ(value(found, "hessian_histogram", {{"from", "2.5"}, {"to", "3"}}), 0.5);
  const ResultRow& last = *find_row(found, "hessian_histogram", {{"from", "2.5"}, {"to", "3"}});
  EXPECT_EQ(last.n, 2);
  EXPECT_EQ(last.kind, IntervalKind::kWilson);
  EXPECT_EQ(std::ranges::count(found.rows, std::string("hessian_histogram"), &ResultRow::metric),
            10);
}

// Ten ranges of 1e-8 would all be called 3 to 3, and their shares would add up in one row.
TEST(HeadAnalysisTest, EigenvaluesThatPrintAlikeAreInOneRange) {
  HeadedSubject base;
  base.long_eigenvalue = 3.0000001;
  HeadAnalysis::Options options = small();
  options.question = {};
  ask_for("hessian", options.question);
  HeadAnalysis task(options, texts_of({8, 12}));
  const Evaluation found = run(task, {&base});
  EXPECT_DOUBLE_EQ(value(found, "hessian_histogram", {{"from", "3"}, {"to", "3"}}), 1);
  EXPECT_EQ(find_row(found, "hessian_histogram", {{"from", "3"}, {"to", "3"}})->n, 2);
  EXPECT_EQ(std::ranges::count(found.rows, std::string("hessian_histogram"), &ResultRow::metric),
            1);
}

TEST(HeadAnalysisTest, WhatABranchTakesAwayIsOfItsHeadsOrOfTheLayer) {
  HeadedSubject base, adapter("adapter"), dense("dense");
  adapter.removed = {{3, kNone}, {kNone, 1}};
  dense.removed = {{7}, {5}};
  HeadAnalysis task(small(), texts_of({8, 12}));
  const Evaluation found = run(task, {&base, &adapter, &dense});
  const Dims head = {{"layer", "0"}, {"head", "0"}}, layer = {{"layer", "1"}};
  EXPECT_DOUBLE_EQ(find_row(found, "directions_below_zero", head, "adapter")->value, 3);
  EXPECT_DOUBLE_EQ(find_row(found, "directions_below_half", layer, "adapter")->value, 1);
  EXPECT_DOUBLE_EQ(find_row(found, "directions_below_half", {}, "adapter")->value, 2);
  EXPECT_EQ(find_row(found, "directions_below_zero", {{"layer", "0"}, {"head", "1"}}, "adapter"),
            nullptr);
  EXPECT_EQ(find_row(found, "directions_below_zero", head, "dense"), nullptr);
  EXPECT_DOUBLE_EQ(find_row(found, "directions_below_zero", layer, "dense")->value, 5);
  EXPECT_FALSE(find_row(found, "directions_below_zero", layer, "dense")->comparison.has_value())
      << "the base has none to compare with";
}

TEST(HeadAnalysisTest, EntropyOfSignedMapsIsLabelled) {
  HeadedSubject base, adapter("adapter");
  adapter.signed_maps = true;
  HeadAnalysis task(small(), texts_of({8, 12}));
  const Evaluation found = run(task, {&base, &adapter});
  EXPECT_THAT(found.notes, Contains(StartsWith("adapter: the maps are signed")));
  EXPECT_THAT(found.notes, Each(Not(StartsWith("base:"))));
}

std::string refusal(HeadAnalysis::Options options, const TextFile& file, Subject& subject) {
  try {
    HeadAnalysis task(std::move(options), file);
    run(task, {&subject});
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(HeadAnalysisTest, WhatCannotBeMeasuredIsRefused) {
  HeadedSubject base, small_context("base", 15);
  EXPECT_THAT(refusal(small(), texts_of({1, 1}), base), HasSubstr("give a longer text"));
  EXPECT_THAT(refusal(small(), texts_of({40}), small_context), HasSubstr("context of 15 tokens"));
  HeadAnalysis::Options nothing = small();
  nothing.question = {};
  EXPECT_THAT(refusal(nothing, texts_of({40}), base), HasSubstr("no metric of heads is asked for"));
  EXPECT_THROW(ask_for("loudness", nothing.question), std::runtime_error);
  FakeSubject plain;
  EXPECT_THAT(refusal(small(), texts_of({40}), plain), HasSubstr("does not show its heads"));
}

}  // namespace
}  // namespace dex::evaluate
