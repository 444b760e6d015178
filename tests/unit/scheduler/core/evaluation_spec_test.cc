#include "scheduler/core/evaluation_spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <limits>

#include "tests/unit/scheduler/core/smollm2.h"

namespace dex::core {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

v1::EvaluationSpec evaluation(const std::string& text) {
  v1::EvaluationSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

std::vector<std::string> faults(const std::string& text) {
  std::vector<std::string> out;
  for (const Problem& problem : check_evaluation(evaluation(text), smollm2()))
    out.push_back(problem.reason + " " + problem.field);
  return out;
}

constexpr const char* kBase = R"(subjects { model: "smollm2-135m-instruct" } )";

TEST(EvaluationSpecTest, EveryTaskWithItsDefaultsIsRight) {
  EXPECT_THAT(faults(std::string(kBase) + R"(
    tasks { perplexity { file: "file-1" } } tasks { multi_needle { file: "file-1" } }
    tasks { multiple_choice { file: "file-1" } } tasks { icl { file: "file-1" } }
    tasks { answers { file: "file-1" match: MATCH_F1 } }
    tasks { perplexity { file: "file-1" group_by: "tag" group_by: "length_bucket" } }
    tasks { multiple_choice { file: "file-1" score: SCORE_PER_TOKEN } }
    tasks { instructions { file: "file-1" } } tasks { multi_needle { } }
    tasks { head_analysis { file: "file-1" metrics: METRIC_ENTROPY metrics: METRIC_HESSIAN } })"),
              ElementsAre());
}

// Without a file needles are hidden in the shipped text, whose format is nobody's to say: neither a
// spec's nor, or an effective spec could not be sent again, ours.
TEST(EvaluationSpecTest, NeedlesNeedNoFile) {
  EXPECT_THAT(faults(std::string(kBase) + "tasks { multi_needle { format: TEXT_FORMAT_RAW } }"),
              ElementsAre("UNUSED_FIELD tasks[0].multi_needle.format"));
  auto spec = evaluation(std::string(kBase) + "tasks { multi_needle { lengths: 1024 } }");
  EXPECT_TRUE(evaluation_files(spec).empty());
  fill_evaluation(spec, {});
  EXPECT_EQ(spec.tasks(0).multi_needle().format(), v1::TEXT_FORMAT_UNSPECIFIED);
  EXPECT_TRUE(check_evaluation(spec, smollm2()).empty());
}

TEST(EvaluationSpecTest, EverythingThatIsWrongIsNamedAtOnce) {
  EXPECT_THAT(
      faults(R"(subjects { model: "m" label: "a b" }
    tasks { perplexity { context_length: 8193 stride: 0 max_tokens: 1 group_by: "line" } }
    tasks { multi_needle { file: "f" lengths: 9000 depths_percent: 101 n_needles: 2 n_queries: 3 } }
    tasks { multiple_choice { file: "f" shots_file: "g" samples: 0 score: 77 } }
    tasks { icl { file: "f" shots: 2000 n_orders: 0 order: 77 } }
    tasks { answers { file: "f" max_tokens: 0 match: 77 } }
    tasks { head_analysis { metrics: METRIC_CKA metrics: METRIC_CKA n_sequences: 0 seq_length: 8193 } }
    tasks { }
    tasks { instructions { max_tokens: 8193 } }
    seed: -1 confidence: 0.4)"),
      UnorderedElementsAre(
          "INVALID_FIELD subjects[0].label", "MISSING_FIELD tasks[0].perplexity.file",
          "VALUE_OUT_OF_RANGE tasks[0].perplexity.context_length",
          "VALUE_OUT_OF_RANGE tasks[0].perplexity.stride",
          "VALUE_OUT_OF_RANGE tasks[0].perplexity.max_tokens",
          "INVALID_FIELD tasks[0].perplexity.group_by",
          "VALUE_OUT_OF_RANGE tasks[1].multi_needle.lengths",
          "VALUE_OUT_OF_RANGE tasks[1].multi_needle.depths_percent",
          "VALUE_OUT_OF_RANGE tasks[1].multi_needle.n_queries",
          "UNUSED_FIELD tasks[2].multiple_choice.shots_file",
          "VALUE_OUT_OF_RANGE tasks[2].multiple_choice.samples",
          "INVALID_FIELD tasks[2].multiple_choice.score", "INVALID_FIELD tasks[4].answers.match",
          "VALUE_OUT_OF_RANGE tasks[3].icl.shots", "VALUE_OUT_OF_RANGE tasks[3].icl.n_orders",
          "INVALID_FIELD tasks[3].icl.order", "VALUE_OUT_OF_RANGE tasks[4].answers.max_tokens",
          "MISSING_FIELD tasks[5].head_analysis.file",
          "INVALID_FIELD tasks[5].head_analysis.metrics",
          "VALUE_OUT_OF_RANGE tasks[5].head_analysis.n_sequences",
          "VALUE_OUT_OF_RANGE tasks[5].head_analysis.seq_length", "MISSING_FIELD tasks[6]",
          "MISSING_FIELD tasks[7].instructions.file",
          "VALUE_OUT_OF_RANGE tasks[7].instructions.max_tokens", "VALUE_OUT_OF_RANGE seed",
          "VALUE_OUT_OF_RANGE confidence"));
}

TEST(EvaluationSpecTest, SeveralGridsOfNeedlesAreOneForEachNumber) {
  const auto with = [](const std::string& options) {
    return faults(std::string(kBase) + R"(tasks { multi_needle { file: "f" )" + options + " } }");
  };
  const std::string at = " tasks[0].multi_needle.";
  EXPECT_THAT(with("needle_counts: 1 needle_counts: 4"), ElementsAre());
  EXPECT_THAT(with("needle_counts: 1 needle_counts: 8 query_counts: 1 query_counts: 8"),
              ElementsAre());
  EXPECT_THAT(with("needle_counts: 2 needle_counts: 4 n_queries: 2"), ElementsAre());
  EXPECT_THAT(with("needle_counts: 1 needle_counts: 4 n_queries: 2"),
              ElementsAre("VALUE_OUT_OF_RANGE" + at + "n_queries"));
  EXPECT_THAT(with("needle_counts: 4 needle_counts: 65 needle_counts: 4"),
              ElementsAre("VALUE_OUT_OF_RANGE" + at + "needle_counts",
                          "INVALID_FIELD" + at + "needle_counts"));
  EXPECT_THAT(with("needle_counts: 0 query_counts: 0"),
              ElementsAre("VALUE_OUT_OF_RANGE" + at + "needle_counts"));
  EXPECT_THAT(with("needle_counts: 2 query_counts: 3"),
              ElementsAre("VALUE_OUT_OF_RANGE" + at + "query_counts"));
  EXPECT_THAT(with("needle_counts: 2 needle_counts: 4 query_counts: 2"),
              ElementsAre("INVALID_FIELD" + at + "query_counts"));
  EXPECT_THAT(with("needle_counts: 2 n_needles: 2 n_queries: 1 query_counts: 1"),
              ElementsAre("CONFLICTING_FIELDS" + at + "n_needles",
                          "CONFLICTING_FIELDS" + at + "n_queries"));
  EXPECT_THAT(with("query_counts: 1"), ElementsAre("UNUSED_FIELD" + at + "query_counts"));

  // Each is as much as a task, in number and in cost.
  std::string seventeen;
  for (int i = 1; i <= 17; ++i) seventeen += "needle_counts: " + std::to_string(i) + " ";
  EXPECT_THAT(with(seventeen), ElementsAre("VALUE_OUT_OF_RANGE tasks"));
  const auto flops = [](const std::string& options) {
    const auto spec =
        evaluation(std::string(kBase) + R"(tasks { multi_needle { file: "f" )" + options + " } }");
    return evaluation_flops(spec, smollm2(), {});
  };
  EXPECT_DOUBLE_EQ(flops("needle_counts: 1 needle_counts: 2 needle_counts: 4"),
                   3 * flops("n_needles: 4"));
}

// As the engine asks it (worker/evaluate/perplexity_windows.h), before the evaluation has waited.
TEST(EvaluationSpecTest, AStrideIsShorterThanItsWindow) {
  const auto with = [](const std::string& options) {
    return faults(std::string(kBase) + R"(tasks { perplexity { file: "f" )" + options + " } }");
  };
  const std::string bad = "VALUE_OUT_OF_RANGE tasks[0].perplexity.stride";
  EXPECT_THAT(with("context_length: 512 stride: 511"), ElementsAre());
  EXPECT_THAT(with("context_length: 512 stride: 512"), ElementsAre(bad));
  EXPECT_THAT(with("stride: 2047"), ElementsAre());  // of the default window, 2048 tokens
  EXPECT_THAT(with("stride: 2048"), ElementsAre(bad));
}

// The model was trained on 8192 tokens; with leave four times as many may be asked for.
TEST(EvaluationSpecTest, LengthsBeyondTheModelsNeedLeave) {
  const auto with = [](const std::string& tasks) { return faults(std::string(kBase) + tasks); };
  const std::string context = "VALUE_OUT_OF_RANGE tasks[0].perplexity.context_length";
  EXPECT_THAT(with(R"(tasks { perplexity { file: "f" context_length: 8193 } })"),
              ElementsAre(context));
  EXPECT_THAT(with(R"(tasks { perplexity { file: "f" context_length: 32768 stride: 32767
                                           allow_extrapolation: true } })"),
              ElementsAre());
  EXPECT_THAT(with(R"(tasks { perplexity { file: "f" context_length: 32769
                                           allow_extrapolation: true } })"),
              ElementsAre(context));
  EXPECT_THAT(with(R"(tasks { multi_needle { file: "f" lengths: 8192 lengths: 16384
                                             allow_extrapolation: true } })"),
              ElementsAre());
  EXPECT_THAT(with(R"(tasks { multi_needle { file: "f" lengths: 32769
                                             allow_extrapolation: true } })"),
              ElementsAre("VALUE_OUT_OF_RANGE tasks[0].multi_needle.lengths"));
}

TEST(EvaluationSpecTest, NumbersOfSubjectsAndTasksAreBounded) {
  EXPECT_THAT(faults(""), ElementsAre("MISSING_FIELD subjects", "MISSING_FIELD tasks"));
  std::string many;
  for (int i = 0; i < 5; ++i) many += kBase;
  for (int i = 0; i < 17; ++i) many += R"(tasks { icl { file: "f" } } )";
  EXPECT_THAT(faults(many), ElementsAre("VALUE_OUT_OF_RANGE subjects", "VALUE_OUT_OF_RANGE tasks"));
  auto spec = evaluation(std::string(kBase) + R"(tasks { icl { file: "f" } })");
  spec.set_confidence(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(check_evaluation(spec, smollm2()).size(), 1U);
}

TEST(EvaluationSpecTest, WhatWasLeftOpenIsFilledIn) {
  auto spec =
      evaluation(R"(subjects { model: "m" } subjects { model: "m" adapter: "ft:m:t:night:1" }
    subjects { model: "m" adapter: "ft:m:t::2" } subjects { model: "m" adapter: "ft:m:t:night:3" }
    tasks { perplexity { file: "file-1" } } tasks { multi_needle { file: "file-2" } }
    tasks { perplexity { file: "file-2" format: TEXT_FORMAT_RAW } }
    tasks { head_analysis { file: "file-2" } })");
  fill_evaluation(spec, {{"file-1", "wiki.test.raw"}, {"file-2", "rows.jsonl"}});
  std::vector<std::string> labels;
  for (const auto& subject : spec.subjects()) labels.push_back(subject.label());
  EXPECT_THAT(labels, ElementsAre("base", "night", "adapter", "night-2"));
  EXPECT_EQ(spec.tasks(0).perplexity().format(), v1::TEXT_FORMAT_RAW);
  EXPECT_EQ(spec.tasks(1).multi_needle().format(), v1::TEXT_FORMAT_JSONL);
  EXPECT_EQ(spec.tasks(2).perplexity().format(), v1::TEXT_FORMAT_RAW) << "as it was asked for";
  EXPECT_EQ(spec.tasks(3).head_analysis().format(), v1::TEXT_FORMAT_JSONL);
  EXPECT_TRUE(spec.has_seed());
  EXPECT_DOUBLE_EQ(spec.confidence(), 0.95);
}

TEST(EvaluationSpecTest, AScaleOfLambdaIsBoundedAndNamesItsSubject) {
  const std::string task = R"(tasks { icl { file: "f" } })";
  const auto with = [&](const std::string& subject) {
    return faults(kBase + ("subjects { model: \"m\" " + subject + " } ") + task);
  };
  EXPECT_THAT(with(R"(adapter: "ft:m:t:night:1" dex_lambda_scale: 0)"), ElementsAre());
  EXPECT_THAT(with(R"(adapter: "ft:m:t:night:1" dex_lambda_scale: 1)"), ElementsAre());
  const std::string bad = "VALUE_OUT_OF_RANGE subjects[1].dex_lambda_scale";
  EXPECT_THAT(with(R"(adapter: "ft:m:t:night:1" dex_lambda_scale: 1.5)"), ElementsAre(bad));
  EXPECT_THAT(with(R"(adapter: "ft:m:t:night:1" dex_lambda_scale: nan)"), ElementsAre(bad));
  EXPECT_THAT(with("dex_lambda_scale: 0.5"),
              ElementsAre("UNUSED_FIELD subjects[1].dex_lambda_scale"));

  auto spec = evaluation(kBase +
                         (R"(
    subjects { adapter: "ft:m:t:night:1" } subjects { adapter: "ft:m:t:night:1" dex_lambda_scale: 0.25 }
    subjects { adapter: "ft:m:t:)" +
                          std::string(64, 'x') + R"(:1" dex_lambda_scale: 0 } )") +
                         task);
  fill_evaluation(spec, {});
  EXPECT_EQ(spec.subjects(1).label(), "night");
  EXPECT_EQ(spec.subjects(2).label(), "night-lambda-0.25");
  EXPECT_EQ(spec.subjects(3).label(), std::string(55, 'x') + "-lambda-0");
}

TEST(EvaluationSpecTest, EightBitsAreASubjectsOwnAndNotForHeads) {
  const std::string eight = "subjects { model: \"m\" dtype: DTYPE_INT8 } ";
  const std::string task = R"(tasks { icl { file: "f" } } )";
  const std::string heads = R"(tasks { head_analysis { file: "f" } })";
  EXPECT_THAT(faults(kBase + eight + task), ElementsAre());
  EXPECT_THAT(faults(kBase + task + heads), ElementsAre());
  EXPECT_THAT(faults(kBase + eight + task + heads),
              ElementsAre("CONFLICTING_FIELDS tasks[1].head_analysis"));
  auto odd = evaluation(kBase + task);
  odd.mutable_subjects(0)->set_dtype(static_cast<v1::EvaluationSubject::Dtype>(77));
  const auto problems = check_evaluation(odd, smollm2());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].field, "subjects[0].dtype");

  auto spec =
      evaluation(kBase + eight + R"(
    subjects { adapter: "ft:m:t:night:1" dtype: DTYPE_INT8 }
    subjects { adapter: "ft:m:t:)" +
                 std::string(64, 'x') + R"(:1" dex_lambda_scale: 0 dtype: DTYPE_INT8 } )" + task);
  fill_evaluation(spec, {});
  EXPECT_EQ(spec.subjects(0).label(), "base");
  EXPECT_EQ(spec.subjects(1).label(), "base-int8");
  EXPECT_EQ(spec.subjects(2).label(), "night-int8");
  EXPECT_EQ(spec.subjects(3).label(), std::string(55, 'x') + "-lam-int8");
  const std::string four = "subjects { model: \"m\" dtype: DTYPE_INT4 } ";
  EXPECT_THAT(faults(kBase + four + task), ElementsAre());
  EXPECT_THAT(faults(kBase + four + heads),
              ElementsAre("CONFLICTING_FIELDS tasks[0].head_analysis"));
  spec = evaluation(kBase + four + task);
  fill_evaluation(spec, {});
  EXPECT_EQ(spec.subjects(1).label(), "base-int4");
}

TEST(EvaluationSpecTest, FilesAreListedByWhereTheyStand) {
  const auto files = evaluation_files(evaluation(
      R"(tasks { answers { file: "a" } } tasks { multiple_choice { file: "b" shots_file: "c" } }
         tasks { head_analysis { file: "d" } })"));
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files[3].field, "tasks[2].head_analysis.file");
  EXPECT_EQ(files[0].field, "tasks[0].answers.file");
  EXPECT_EQ(files[1].id, "b");
  EXPECT_EQ(files[2].field, "tasks[1].multiple_choice.shots_file");
}

// 2 FLOP × 134 515 008 parameters × 2 × 100 000 tokens × 2 subjects at 5e10 a second.
TEST(EvaluationSpecTest, TheCostGrowsWithTextAndSubjects) {
  const auto spec =
      evaluation(std::string(kBase) + kBase + R"(tasks { perplexity { file: "f" } })");
  EXPECT_NEAR(evaluation_seconds(spec, smollm2(), {{"f", 400'000}}), 2152.24, 0.01);
  EXPECT_GT(evaluation_seconds(spec, smollm2(), {}), 0);
}

}  // namespace
}  // namespace dex::core
