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
    tasks { head_analysis { file: "file-1" metrics: METRIC_ENTROPY metrics: METRIC_HESSIAN } })"),
              ElementsAre());
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
          "VALUE_OUT_OF_RANGE seed", "VALUE_OUT_OF_RANGE confidence"));
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
