// Quality by tasks in a study's report: what is taken from an evaluation, and how it is summed up.
#include "client/cli/study_tasks.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace dex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

v1::EvaluationTask choices() {
  v1::EvaluationTask task;
  task.mutable_multiple_choice()->set_file("file-1");
  return task;
}

StudyPlan study_of_choices() {
  StudyPlan plan;
  plan.common.model = "tiny";
  plan.common.max_steps = "8";
  plan.methods = {"dex", "kvo_only"};
  plan.seeds = {1, 2, 3};
  plan.tasks = {{"multiple_choice(mmlu.csv)", choices()}};
  return plan;
}

// A run whose result answers so many of the questions.
RunResult answering(const std::string& method, uint64_t seed, double acc, double base = 0.25) {
  RunResult result;
  result.run = {method, seed};
  result.base_loss = 2.5;
  result.loss = 2.4;
  result.evaluation = "eval-" + method + std::to_string(seed);
  result.tasks = {{0, "acc", base, acc, 400}};
  return result;
}

std::vector<RunResult> six_runs() {
  return {answering("dex", 1, 0.30), answering("kvo_only", 1, 0.28),
          answering("dex", 2, 0.40), answering("kvo_only", 2, 0.38),
          answering("dex", 3, 0.50), answering("kvo_only", 3, 0.477)};
}

TEST(StudyTasksTest, ARunsEvaluationIsOfItsBaseAndItsResult) {
  StudyPlan plan = study_of_choices();
  const auto spec = evaluation_of(plan, "ft:tiny:default::01j0");
  ASSERT_EQ(spec.subjects_size(), 2);
  EXPECT_EQ(spec.subjects(0).model(), "tiny");
  EXPECT_EQ(spec.subjects(0).adapter(), "");
  EXPECT_EQ(spec.subjects(1).adapter(), "ft:tiny:default::01j0");
  EXPECT_NE(spec.subjects(0).label(), spec.subjects(1).label());
  ASSERT_EQ(spec.tasks_size(), 1);
  EXPECT_EQ(spec.tasks(0).multiple_choice().file(), "file-1");
  EXPECT_EQ(request_id_of(spec), request_id_of(evaluation_of(plan, "ft:tiny:default::01j0")));
  EXPECT_NE(request_id_of(spec), request_id_of(evaluation_of(plan, "ft:tiny:default::01j1")));
  // What is checked before the first job, where there is no result yet.
  EXPECT_EQ(evaluation_of(plan, "").subjects_size(), 1);
  plan.common.model = "ft:tiny:default:warm:01j0";
  EXPECT_EQ(evaluation_of(plan, "").subjects(0).model(), "tiny");
}

TEST(StudyTasksTest, AnEvaluationIsTriedAgainAsAJobIs) {
  v1::Evaluation evaluation;
  evaluation.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(is_tried_again(evaluation));
  EXPECT_EQ(failure_of(evaluation), "");
  evaluation.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(is_tried_again(evaluation));
  EXPECT_EQ(failure_of(evaluation),
            "the evaluation was cancelled (the same command tries it again)");
  evaluation.set_state(v1::JOB_STATE_FAILED);
  evaluation.mutable_error()->set_code("invalid_evaluation_file");
  evaluation.mutable_error()->set_message("line 3");
  evaluation.mutable_error()->set_category("USER");
  EXPECT_FALSE(is_tried_again(evaluation));
  EXPECT_THAT(failure_of(evaluation), HasSubstr("invalid_evaluation_file: line 3 (the same"));
}

// Over everything where there is such a row; else, as of icl, over the fewest groups. What the base
// lacks is not compared.
TEST(StudyTasksTest, FiguresAreTheRowsOverMost) {
  v1::Evaluation evaluation;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    spec { subjects { label: "base" } subjects { label: "result" } }
    results { task: "multiple_choice"
      rows { subject: "base" metric: "acc" value: 0.25 n: 8 }
      rows { subject: "base" metric: "acc" value: 0.5 n: 4 dims { key: "subject" value: "law" } }
      rows { subject: "result" metric: "acc" value: 0.375 n: 8 }
      rows { subject: "result" metric: "acc" value: 0.75 n: 4 dims { key: "subject" value: "law" } }
      rows { subject: "result" metric: "of_branch" value: 1 n: 8 } }
    results { task: "icl"
      rows { subject: "base" metric: "accuracy" value: 0.5 n: 6 dims { key: "shots" value: "4" } }
      rows { subject: "result" metric: "accuracy" value: 1 n: 6 dims { key: "shots" value: "4" } }
      rows { subject: "result" metric: "accuracy_of_order" value: 1 n: 6
             dims { key: "shots" value: "4" } dims { key: "order" value: "random 1" } } })",
                                                            &evaluation));
  const auto figures = task_figures(evaluation);
  ASSERT_EQ(figures.size(), 2U);
  EXPECT_EQ(figures[0].task, 0U);
  EXPECT_EQ(figures[0].metric, "acc");
  EXPECT_EQ(figures[0].base, 0.25);
  EXPECT_EQ(figures[0].value, 0.375);
  EXPECT_EQ(figures[0].n, 8);
  EXPECT_EQ(figures[1].task, 1U);
  EXPECT_EQ(figures[1].metric, "accuracy [shots 4]");
  EXPECT_EQ(figures[1].value, 1);
  EXPECT_TRUE(task_figures({}).empty());
}

// Seeds differ far more than methods do; paired, the difference is exact.
TEST(StudyTasksTest, DifferencesArePairedBySeed) {
  const auto rows = summarise(study_of_choices(), six_runs());
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(rows[0].tasks.size(), 1U);
  const TaskSummary& dex = rows[0].tasks[0];
  EXPECT_NEAR(dex.value.mean, 0.4, 1e-12);
  EXPECT_NEAR(dex.against_control.mean, 0.021, 1e-12);
  EXPECT_TRUE(dex.against_control.excludes_zero());
  EXPECT_NEAR(dex.against_base.mean, 0.15, 1e-12);
  EXPECT_FALSE(dex.against_base.excludes_zero()) << "0.05, 0.15, 0.25: scipy's low end is -0.098";
  EXPECT_NEAR(dex.against_base.low, 0.15 - 4.302652729911275 * 0.1 / 1.7320508075688772, 1e-9);
  EXPECT_EQ(rows[1].tasks[0].against_control.n, 0U) << "the control is not compared with itself";
}

TEST(StudyTasksTest, TheReportHasATableATask) {
  const StudyPlan plan = study_of_choices();
  const auto results = six_runs();
  const auto rows = summarise(plan, results);
  const std::string report = markdown("d", "c", plan, rows);
  EXPECT_THAT(report, HasSubstr("`multiple_choice(mmlu.csv)`\n\n| metric | method | value |"));
  EXPECT_THAT(report, HasSubstr("| acc | base | 0.2500 | | |\n| acc | `dex` | 0.4000 ("));
  EXPECT_THAT(report, HasSubstr(" | 0.0210 (0.0167–0.0253) ≠ |\n"));
  EXPECT_THAT(report, HasSubstr("| acc | `kvo_only` | 0.3790 ("));
  EXPECT_THAT(report, HasSubstr(" | – |\n"));
  const auto json = to_json("d", "c", plan, rows, results);
  const auto& task = json["methods"][0]["tasks"][0];
  EXPECT_EQ(task["task"], "multiple_choice(mmlu.csv)");
  EXPECT_EQ(task["metric"], "acc");
  EXPECT_EQ(task["base_min"], 0.25);
  EXPECT_NEAR(task["against_kvo_only"]["value"].get<double>(), 0.021, 1e-12);
  EXPECT_EQ(json["runs"][0]["evaluation"], "eval-dex1");
  EXPECT_EQ(json["runs"][0]["tasks"][0]["value"], 0.3);
  EXPECT_EQ(json["runs"][0]["tasks"][0]["n"], 400);

  StudyPlan without = plan;
  without.tasks.clear();
  auto plain = results;
  for (RunResult& result : plain) {
    result.tasks.clear();
    result.evaluation.clear();
  }
  const auto plain_rows = summarise(without, plain);
  EXPECT_THAT(markdown("d", "c", without, plain_rows), Not(HasSubstr("dexctl evaluations")));
  const auto plain_json = to_json("d", "c", without, plain_rows, plain);
  EXPECT_FALSE(plain_json["methods"][0].contains("tasks"));
  EXPECT_FALSE(plain_json["runs"][0].contains("tasks"));
}

TEST(StudyTasksTest, WhatWasNotMeasuredIsToldAndNotCounted) {
  auto results = six_runs();
  results[2].tasks.clear();
  results[2].not_measured = "tasks not measured: out_of_memory: 3 GiB are not there";
  results[4].tasks[0].value = std::numeric_limits<double>::quiet_NaN();
  const auto rows = summarise(study_of_choices(), results);
  EXPECT_EQ(rows[0].loss.n, 3U);
  ASSERT_EQ(rows[0].tasks.size(), 1U);
  EXPECT_EQ(rows[0].tasks[0].value.n, 1U);
  EXPECT_EQ(rows[0].tasks[0].against_control.n, 1U);
  EXPECT_EQ(rows[1].tasks[0].value.n, 3U);
  EXPECT_THAT(rows[0].notes,
              ElementsAre("seed 2: tasks not measured: out_of_memory: 3 GiB are not there"));
  for (RunResult& result : results) result.tasks.clear();
  EXPECT_TRUE(summarise(study_of_choices(), results)[0].tasks.empty());
}

}  // namespace
}  // namespace dex::cli
