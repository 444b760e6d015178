#include "worker/serve/evaluation_messages.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/worker/serve/evaluation_fixture.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;

TEST(EvaluationMessagesTest, EveryOptionArrives) {
  EvaluatorStart start;
  auto& spec = *start.mutable_spec();
  spec.set_seed(7);
  spec.set_confidence(0.9);
  for (const char* id : {"a", "b"}) {
    start.add_files()->set_file(id);
    start.mutable_files(start.files_size() - 1)->set_path(std::string("/files/") + id);
  }
  auto& needle = *spec.add_tasks()->mutable_multi_needle();
  needle.set_file("a");
  needle.add_lengths(512);
  needle.add_depths_percent(30);
  needle.set_n_needles(4);
  needle.set_n_queries(1);
  needle.set_samples_per_cell(5);
  needle.set_chat(true);
  needle.set_allow_extrapolation(true);
  auto& choice = *spec.add_tasks()->mutable_multiple_choice();
  choice.set_file("a");
  choice.set_shots_file("b");
  choice.set_n_shot(5);
  choice.set_letters(true);
  choice.set_score(pb::MultipleChoiceTask::SCORE_PER_TOKEN);
  choice.set_samples(40);
  auto& icl = *spec.add_tasks()->mutable_icl();
  icl.set_file("b");
  icl.add_shots(2);
  icl.set_n_orders(10);
  icl.set_order(pb::IclTask::ORDER_BOTH);
  auto& answers = *spec.add_tasks()->mutable_answers();
  answers.set_file("b");
  answers.set_max_tokens(9);
  answers.set_chat(true);
  answers.set_match(pb::AnswersTask::MATCH_CONTAINS);
  const EvaluationJob job = evaluation_job(start);
  ASSERT_EQ(job.tasks.size(), 4U);
  EXPECT_EQ(job.seed, 7U);
  EXPECT_DOUBLE_EQ(job.confidence, 0.9);
  for (const auto& task : job.tasks) EXPECT_EQ(task.seed, 7U);
  EXPECT_THAT(job.tasks[0].multi_needle.lengths, ::testing::ElementsAre(512));
  EXPECT_THAT(job.tasks[0].multi_needle.depths_percent, ::testing::ElementsAre(30));
  EXPECT_EQ(job.tasks[0].multi_needle.needles, 4);
  EXPECT_EQ(job.tasks[0].multi_needle.queries, 1);
  EXPECT_EQ(job.tasks[0].multi_needle.samples_per_cell, 5);
  EXPECT_TRUE(job.tasks[0].chat);
  EXPECT_TRUE(job.tasks[0].allow_extrapolation);
  EXPECT_FALSE(job.tasks[1].allow_extrapolation);
  EXPECT_EQ(job.tasks[1].shots_file.string(), "/files/b");
  EXPECT_EQ(job.tasks[1].multiple_choice.shots, 5);
  EXPECT_TRUE(job.tasks[1].multiple_choice.letters);
  EXPECT_EQ(job.tasks[1].multiple_choice.score, evaluate::MultipleChoice::Score::kPerToken);
  EXPECT_EQ(job.tasks[1].samples, 40);
  EXPECT_THAT(job.tasks[2].icl.shots, ::testing::ElementsAre(2));
  EXPECT_EQ(job.tasks[2].icl.orders, 10);
  EXPECT_EQ(job.tasks[2].order, "both");
  EXPECT_EQ(job.tasks[3].answers.max_tokens, 9);
  EXPECT_TRUE(job.tasks[3].chat);
  EXPECT_EQ(job.tasks[3].answers.match, evaluate::Answers::Match::kContains);
  EXPECT_EQ(job.tasks[3].file.string(), "/files/b");
}

TEST(EvaluationMessagesTest, GridsOfNeedlesArrive) {
  const auto settings = [](const std::function<void(pb::MultiNeedleTask&)>& fill) {
    EvaluatorStart start;
    start.add_files()->set_file("a");
    start.mutable_files(0)->set_path("/files/a");
    auto& task = *start.mutable_spec()->add_tasks()->mutable_multi_needle();
    task.set_file("a");
    fill(task);
    return evaluate::MultiNeedle::settings_text(evaluation_job(start).tasks[0].multi_needle);
  };
  EXPECT_EQ(settings([](auto&) {}), "6 needles, 2 asked for");
  EXPECT_EQ(settings([](auto& task) { task.set_n_queries(1); }), "6 needles, 1 asked for");
  const auto two = [](pb::MultiNeedleTask& task) {
    task.add_needle_counts(1);
    task.add_needle_counts(4);
  };
  EXPECT_EQ(settings(two), "1 needle, 1 asked for; 4 needles, 2 asked for");
  EXPECT_EQ(settings([&](auto& task) {
              two(task);
              task.set_n_queries(1);
            }),
            "1 needle, 1 asked for; 4 needles, 1 asked for");
  EXPECT_EQ(settings([&](auto& task) {
              two(task);
              task.add_query_counts(1);
              task.add_query_counts(4);
            }),
            "1 needle, 1 asked for; 4 needles, 4 asked for");
}

// Needles without a file are hidden in the shipped text, and a report says so.
TEST(EvaluationMessagesTest, NeedlesHaveATextOfTheirOwn) {
  EvaluatorStart start;
  start.mutable_spec()->add_tasks()->mutable_multi_needle()->add_lengths(512);
  const EvaluateCommand command = evaluation_job(start).tasks.at(0);
  EXPECT_TRUE(command.file.empty());
  EXPECT_EQ(make_task(command)->name(), "multi_needle");
  pb::EvaluationReport report;
  *report.add_results() = result_message(command, "", {});
  const std::vector<std::string> names = {""};
  EXPECT_THAT(report_markdown(report, names), HasSubstr("## multi_needle: the shipped text (6"));
}

// Two tasks on the same text are told apart, and each grid has as much room as a task of its own.
TEST(EvaluationMessagesTest, NeedlesSayWhichTheyAre) {
  EvaluateCommand command;
  command.task = "multi_needle";
  evaluate::Evaluation evaluation;
  pb::EvaluationReport report;
  *report.add_results() = result_message(command, "f", evaluation);
  command.multi_needle.needle_counts = {1, 4};
  for (size_t i = 0; i <= kMostRows; ++i)
    evaluation.rows.push_back({.task = "t", .metric = "a", .dims = {{"n", std::to_string(i)}}});
  *report.add_results() = result_message(command, "f", evaluation);
  EXPECT_EQ(report.results(1).rows_size(), static_cast<int>(kMostRows) + 1);
  EXPECT_EQ(report.results(1).notes_size(), 0);
  const std::vector<std::string> names = {"book.txt", "book.txt"};
  const std::string markdown = report_markdown(report, names);
  EXPECT_THAT(markdown, HasSubstr("## multi_needle: book.txt (6 needles, 2 asked for)\n"));
  EXPECT_THAT(markdown, HasSubstr("## multi_needle: book.txt (1 needle, 1 asked for; 4 needles, 2 "
                                  "asked for)\n"));
}

TEST(EvaluationMessagesTest, RowsOverEverythingAreKeptBeforeThoseOfGroups) {
  evaluate::Evaluation evaluation;
  for (size_t i = 0; i < kMostRows; ++i)
    evaluation.rows.push_back({.task = "t", .metric = "a", .dims = {{"n", std::to_string(i)}}});
  evaluation.rows.push_back({.task = "t", .metric = "b"});
  const auto result = result_message({}, "f", evaluation);
  ASSERT_EQ(result.rows_size(), static_cast<int>(kMostRows));
  EXPECT_EQ(result.rows(0).dims().at("n"), "0");
  EXPECT_EQ(result.rows(result.rows_size() - 1).metric(), "b");
  ASSERT_EQ(result.notes_size(), 1);
  EXPECT_THAT(result.notes(0), HasSubstr("only 500 of 501 rows are kept"));
}

TEST(EvaluationMessagesTest, RowsComeBackAsTheyWere) {
  evaluate::ResultRow row{.task = "multi_needle", .subject = "night", .metric = "accuracy"};
  row.dims = {{"length", "1024"}, {"depth", "50"}};
  row.value = 0.25;
  row.interval = evaluate::Interval{0.1, 0.5};
  row.confidence = 0.9;
  row.kind = evaluate::IntervalKind::kWilson;
  row.n = 12;
  row.comparison =
      evaluate::Comparison{-0.5, evaluate::Interval{-0.7, -0.2}, evaluate::Verdict::kWorse};
  const auto back = row_of(row_message(row));
  EXPECT_EQ(back.dims, (evaluate::Dims{{"depth", "50"}, {"length", "1024"}}));
  EXPECT_EQ(back.value, row.value);
  EXPECT_EQ(back.interval->high, 0.5);
  EXPECT_EQ(back.kind, row.kind);
  EXPECT_EQ(back.n, 12);
  EXPECT_EQ(back.comparison->delta, -0.5);
  EXPECT_EQ(back.comparison->interval->low, -0.7);
  EXPECT_EQ(back.comparison->verdict, evaluate::Verdict::kWorse);
  row.comparison->verdict = evaluate::Verdict::kDifferent;
  EXPECT_EQ(row_of(row_message(row)).comparison->verdict, evaluate::Verdict::kDifferent);
  evaluate::ResultRow bare{.task = "icl"};
  EXPECT_FALSE(row_of(row_message(bare)).interval);
  EXPECT_FALSE(row_of(row_message(bare)).comparison);
}

}  // namespace
}  // namespace dex::serve
