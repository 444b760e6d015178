#include <gmock/gmock.h>

#include <fstream>

#include "client/cli/evaluation_flags.h"
#include "client/cli/evaluation_view.h"
#include "client/cli/exit_code.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

TEST(EvaluationFlagsTest, BaseFirstThenAdaptersThenTheTaskWithItsOptions) {
  EvaluationFlags flags;
  flags.adapters = {"ft:small:default:night:01", "ft:small:default::02"};
  flags.task = "multi-needle";
  flags.file = "book.txt";
  flags.sets = {"lengths=512,1024", "n_needles=4", "format=jsonl"};
  flags.seed = "3";
  flags.confidence = "0.9";
  flags.metadata = {"study=a"};
  const auto spec = make_evaluation_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  ASSERT_EQ(spec->subjects_size(), 3);
  EXPECT_EQ(spec->subjects(0).model(), "small") << "named by the adapter";
  EXPECT_EQ(spec->subjects(0).adapter(), "");
  EXPECT_EQ(spec->subjects(2).adapter(), "ft:small:default::02");
  const auto& task = spec->tasks(0).multi_needle();
  EXPECT_EQ(task.file(), "book.txt");
  EXPECT_THAT(task.lengths(), testing::ElementsAre(512, 1024));
  EXPECT_EQ(task.n_needles(), 4U);
  EXPECT_EQ(task.format(), v1::TEXT_FORMAT_JSONL);
  EXPECT_EQ(spec->seed(), 3);
  EXPECT_DOUBLE_EQ(spec->confidence(), 0.9);
  EXPECT_EQ(spec->metadata().at("study"), "a");
}

TEST(EvaluationFlagsTest, AnAdapterMayComeWithAScaleOfItsLambda) {
  EvaluationFlags flags;
  flags.adapters = {"ft:small:default:night:01", "ft:small:default:night:01@0.5",
                    "ft:small:default:night:01@0"};
  flags.task = "answers";
  flags.file = "a.jsonl";
  const auto spec = make_evaluation_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_FALSE(spec->subjects(1).has_dex_lambda_scale());
  EXPECT_EQ(spec->subjects(2).adapter(), "ft:small:default:night:01");
  EXPECT_EQ(spec->subjects(2).dex_lambda_scale(), 0.5);
  EXPECT_TRUE(spec->subjects(3).has_dex_lambda_scale());
  EXPECT_EQ(spec->subjects(3).dex_lambda_scale(), 0);
  flags.adapters = {"ft:small:default:night:01@half"};
  EXPECT_THAT(make_evaluation_spec(flags).status().message(), HasSubstr("dex_lambda_scale"));
}

TEST(EvaluationFlagsTest, EachSubjectMayHaveATwinInEightBits) {
  EvaluationFlags flags;
  flags.adapters = {"ft:small:default:night:01@0.5"};
  flags.task = "perplexity";
  flags.file = "a.txt";
  flags.against_int8 = true;
  const auto spec = make_evaluation_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  ASSERT_EQ(spec->subjects_size(), 4);
  for (const int i : {0, 2}) {
    EXPECT_FALSE(spec->subjects(i).has_dtype());
    v1::EvaluationSubject twin = spec->subjects(i);
    twin.set_dtype(v1::EvaluationSubject::DTYPE_INT8);
    EXPECT_EQ(twin.SerializeAsString(), spec->subjects(i + 1).SerializeAsString()) << i;
  }
  EXPECT_EQ(spec->subjects(3).dex_lambda_scale(), 0.5);

  const support::TemporaryDirectory directory;
  std::ofstream(directory / "spec.json")
      << R"({"subjects": [{"model": "small", "label": "mine"}]})";
  std::ofstream(directory / "eight.json")
      << R"({"subjects": [{"model": "small", "dtype": "DTYPE_INT8"}]})";
  flags.adapters.clear();
  flags.spec_file = directory / "spec.json";
  EXPECT_EQ(make_evaluation_spec(flags)->subjects(1).label(), "mine-int8");
  flags.spec_file = directory / "eight.json";
  EXPECT_EQ(make_evaluation_spec(flags).status().reason(), "CONFLICTING_FIELDS");
}

TEST(EvaluationFlagsTest, WhatIsMissingOrUnknownIsSaid) {
  EvaluationFlags flags;
  EXPECT_THAT(make_evaluation_spec(flags).status().message(), HasSubstr("--model"));
  flags.model = "small";
  EXPECT_THAT(make_evaluation_spec(flags).status().message(), HasSubstr("perplexity"));
  flags.file = "a.txt";
  EXPECT_EQ(make_evaluation_spec(flags).status().reason(), "MISSING_FIELD");
  flags.task = "perplexing";
  EXPECT_THAT(make_evaluation_spec(flags).status().message(), HasSubstr("multiple_choice"));
  flags.task = "perplexity";
  flags.sets = {"strides=3"};
  EXPECT_THAT(make_evaluation_spec(flags).status().message(), HasSubstr("stride"));
  flags.sets = {"stride"};
  EXPECT_EQ(make_evaluation_spec(flags).status().reason(), "INVALID_FIELD");
  flags.sets = {};
  flags.shots_file = "dev.csv";
  EXPECT_FALSE(make_evaluation_spec(flags).ok()) << "perplexity has no examples";
}

TEST(EvaluationFlagsTest, FlagsAreAddedToASpecFile) {
  const support::TemporaryDirectory directory;
  std::ofstream(directory / "spec.json") << R"({"subjects": [{"model": "small"}],
      "tasks": [{"perplexity": {"file": "file-1"}}, {"icl": {"file": "file-2", "shots": [2]}}]})";
  EvaluationFlags flags;
  flags.spec_file = directory / "spec.json";
  flags.task = "answers";
  flags.file = "file-3";
  const auto spec = make_evaluation_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(spec->subjects_size(), 1);
  ASSERT_EQ(spec->tasks_size(), 3);
  EXPECT_EQ(spec->tasks(2).answers().file(), "file-3");
}

TEST(EvaluationViewTest, ShowsIntervalsAndVerdicts) {
  v1::Evaluation evaluation;
  evaluation.set_id("eval-1");
  evaluation.set_state(v1::JOB_STATE_SUCCEEDED);
  auto& result = *evaluation.add_results();
  result.set_task("perplexity");
  result.set_file("file-1");
  result.set_settings("how it was measured");
  result.add_notes("A sentence.");
  auto& row = *result.add_rows();
  row.set_subject("night");
  row.set_metric("perplexity");
  (*row.mutable_dims())["tag"] = "news";
  row.set_value(17.5);
  row.set_low(16);
  row.set_high(19);
  row.set_delta(-1.25);
  row.set_verdict(v1::EvaluationRow::VERDICT_NO_DIFFERENCE);
  const std::string text = evaluation_text(evaluation, Terminal{});
  for (const char* part :
       {"eval-1", "succeeded", "tag=news", "17.5000", "16.0000 – 19.0000", "-1.2500",
        "no difference", "note: A sentence.", "perplexity, file-1, how it was measured\n"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(EvaluationViewTest, SamplesAreShownByTheirEndsInOneLine) {
  v1::EvaluationSample sample;
  sample.set_task("icl");
  sample.set_subject("night");
  sample.set_line(7);
  (*sample.mutable_dims())["shots"] = "4";
  sample.set_score(0);
  sample.set_baseline_score(1);
  sample.set_prompt("ä" + std::string(90, 'x') + "\nWhat\x1B is\ttwo?");
  sample.set_output("three");
  EXPECT_EQ(sample_text(sample, Terminal{}),
            "icl, shots=4, line 7, night: 0.0000, baseline 1.0000\n"
            "  prompt    …" +
                std::string(86, 'x') +
                " What  is two?\n"
                "  output    three\n");
  sample.clear_baseline_score();
  sample.clear_dims();
  sample.set_line(0);
  sample.set_prompt("short");
  EXPECT_EQ(sample_text(sample, Terminal{}),
            "icl, night: 0.0000\n  prompt    short\n  output    three\n");
}

TEST(EvaluationViewTest, AComparisonHasATableATaskAndItsNotes) {
  v1::CompareEvaluationsResponse comparison;
  for (const uint32_t task : {0U, 0U, 1U}) {
    auto& row = *comparison.add_differences();
    row.set_task(task == 0 ? "perplexity" : "answers");
    row.set_task_a(task);
    row.set_metric(task == 0 ? "loss" : "f1");
    row.set_subject_a("old");
    row.set_subject_b("new");
    row.set_value_a(2.5);
    row.set_value_b(2.25);
    row.set_delta(-0.25);
    row.set_n(8);
    row.set_verdict(v1::EvaluationRow::VERDICT_BETTER);
  }
  comparison.mutable_differences(0)->set_delta_low(-0.5);
  comparison.mutable_differences(0)->set_delta_high(-0.125);
  (*comparison.mutable_differences(1)->mutable_dims())["tag"] = "news";
  comparison.add_notes("A sentence.");
  const std::string text = comparison_text(comparison, Terminal{});
  for (const char* part :
       {"perplexity\n", "\nanswers\n", "B - A", "old", "new", "2.5000", "2.2500", "-0.2500",
        "-0.5000 – -0.1250", "tag=news", "better", "note: A sentence."})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(text.find("METRIC"), text.rfind("METRIC", text.find("answers"))) << "a head a task";
}

TEST(EvaluationViewTest, AComparisonEndsWithSevenWhereBIsSurelyWorse) {
  v1::CompareEvaluationsResponse comparison;
  auto& whole = *comparison.add_differences();
  auto& part = *comparison.add_differences();
  (*part.mutable_dims())["tag"] = "news";
  whole.set_verdict(v1::EvaluationRow::VERDICT_BETTER);
  part.set_verdict(v1::EvaluationRow::VERDICT_WORSE);
  EXPECT_EQ(exit_code(comparison), kDone) << "one of many groups may be so by chance";
  whole.set_verdict(v1::EvaluationRow::VERDICT_WORSE);
  EXPECT_EQ(exit_code(comparison), kNotPassed);
  whole.set_verdict(v1::EvaluationRow::VERDICT_DIFFERENT);
  EXPECT_EQ(exit_code(comparison), kDone);
  part.set_task_a(1);  // of a task that has no row over everything
  EXPECT_EQ(exit_code(comparison), kNotPassed);
}

TEST(EvaluationViewTest, ExitCodesAreThoseOfJobs) {
  v1::Evaluation evaluation;
  evaluation.set_state(v1::JOB_STATE_FAILED);
  evaluation.mutable_error()->set_category("USER");
  EXPECT_EQ(exit_code(evaluation), kUserFault);
  evaluation.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(exit_code(evaluation), kJobStopped);
  evaluation.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(exit_code(evaluation), kDone);
}

}  // namespace
}  // namespace dex::cli
