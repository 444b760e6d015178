// An evaluation as a job: frames as the agent speaks them over a real socket pair, a real (tiny,
// random) model. What the numbers mean is tested where the tasks are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/sha256.h"
#include "tests/support/content_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "worker/serve/evaluation_frames.h"
#include "worker/serve/evaluation_messages.h"
#include "worker/serve/evaluation_report.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using internal::v1::EvaluatorStart;
using internal::v1::TrainerCommand;
using internal::v1::TrainerReport;
using ::testing::HasSubstr;

constexpr int64_t kPatience_ms = 120'000;

// What an attempt said, until its last frame.
struct Said {
  std::vector<TrainerReport::CheckpointDone> steps;
  std::vector<pb::FineTuningEvent> events;
  double last_ratio = 0;
  TrainerReport::TrainerResult result;
  int exit = -1;
};

class EvaluationFramesTest : public ::testing::Test {
 protected:
  EvaluationFramesTest() {
    support::write_tiny_model(dir / "models");
    std::ofstream text(dir / "wiki");
    for (int i = 0; i < 60; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
    std::ofstream(dir / "choices") << "What is two?,1,2,3,4,B\nWhat is three?,1,2,3,4,C\n";
    std::ofstream(dir / "broken") << "What is two?,1,2,3,4,B\nWhat is three?,1,2,3,4,X\n";
  }

  // Perplexity, then multiple choice on `choices`; the base twice.
  EvaluatorStart start(const std::string& attempt, const std::string& choices = "choices") {
    EvaluatorStart start;
    start.set_job_id("eval-1");
    start.set_model_dir((dir / "models" / support::kTinyModel).string());
    start.set_attempt_dir((dir / attempt).string());
    start.set_threads(1);
    std::filesystem::create_directories(dir / attempt);
    for (const char* label : {"base", "again"}) {
      auto& subject = *start.mutable_spec()->add_subjects();
      subject.set_model(support::kTinyModel);
      subject.set_label(label);
    }
    auto& perplexity = *start.mutable_spec()->add_tasks()->mutable_perplexity();
    perplexity.set_file("file-1");
    perplexity.set_format(pb::TEXT_FORMAT_RAW);
    perplexity.set_context_length(128);
    start.mutable_spec()->add_tasks()->mutable_multiple_choice()->set_file("file-2");
    const std::pair<std::string, std::string> files[] = {{"file-1", "wiki"}, {"file-2", choices}};
    for (const auto& [id, name] : files) {
      auto& file = *start.add_files();
      file.set_file(id);
      file.set_path((dir / name).string());
      file.set_filename(name + ".published");
    }
    return start;
  }

  // Plays the agent until the last frame. `on_progress` may send something.
  Said run(const EvaluatorStart& start,
           const std::function<void(base::FrameChannel&)>& on_progress = {}) {
    auto pair = base::FrameChannel::pair();
    EXPECT_TRUE(pair.ok());
    auto& agent = *pair->first;
    base::FrameChannel engine(std::move(pair->second));
    Said said;
    std::jthread program([&] { said.exit = run_evaluation_frames(engine, signals, clock); });
    TrainerCommand command;
    *command.mutable_evaluate() = start;
    EXPECT_TRUE(agent.write(command.SerializeAsString(), kPatience_ms).ok());
    while (true) {
      const auto frame = agent.read(kPatience_ms);
      TrainerReport report;
      if (!frame.ok() || !report.ParseFromString(*frame)) {
        ADD_FAILURE() << frame.status().to_string();
        break;
      }
      if (report.has_progress()) {
        said.last_ratio = report.progress().progress().progress_percentage() / 100;
        if (on_progress && report.progress().phase() == pb::JOB_PHASE_LOADING_MODEL)
          on_progress(agent);
      }
      if (report.has_checkpoint()) said.steps.push_back(report.checkpoint());
      if (report.has_event()) said.events.push_back(report.event());
      if (!report.has_result()) continue;
      said.result = report.result();
      break;
    }
    program.join();
    return said;
  }

  support::TemporaryDirectory dir;
  base::StopSignals signals;
  base::SystemClock clock;
};

TEST_F(EvaluationFramesTest, KeepsEachTaskAndPublishesRowsWithIntervals) {
  const Said said = run(start("attempt-1"));
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  EXPECT_EQ(said.exit, 0);
  ASSERT_EQ(said.steps.size(), 2U);
  EXPECT_EQ(said.steps[0].uri(), (dir / "attempt-1/step-1").string());
  ASSERT_EQ(said.events.size(), 2U);
  EXPECT_EQ(said.events[0].type(), "job_evaluation");
  EXPECT_EQ(said.events[0].job_evaluation().task(), "perplexity");
  EXPECT_GT(said.events[0].job_evaluation().rows_size(), 0);
  EXPECT_DOUBLE_EQ(said.last_ratio, 1);
  EXPECT_EQ(said.result.result().uri(), (dir / "attempt-1/final").string());
  const auto manifest = support::content_of(dir / "attempt-1/final/checksums.json");
  EXPECT_EQ(said.result.result().manifest_sha256(), base::sha256_hex(manifest));

  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  ASSERT_EQ(report.results_size(), 2);
  std::map<std::string, pb::EvaluationRow> rows;
  for (const auto& row : report.results(0).rows()) rows[row.subject() + " " + row.metric()] = row;
  const auto& perplexity = rows.at("base perplexity");
  EXPECT_NEAR(perplexity.value(), std::exp(rows.at("base loss").value()),
              1e-9 * perplexity.value());
  EXPECT_LT(perplexity.low(), perplexity.value());
  EXPECT_GT(perplexity.high(), perplexity.value());
  EXPECT_EQ(perplexity.interval(), pb::EvaluationRow::INTERVAL_BOOTSTRAP);
  const auto& again = rows.at("again perplexity");
  EXPECT_EQ(again.value(), perplexity.value()) << "the same weights";
  EXPECT_EQ(again.delta(), 0);
  EXPECT_EQ(again.verdict(), pb::EvaluationRow::VERDICT_NO_DIFFERENCE);
  EXPECT_EQ(report.results(1).task(), "multiple_choice");

  const auto markdown = support::content_of(dir / "attempt-1/final/report.md");
  EXPECT_THAT(markdown, HasSubstr("## perplexity: wiki.published"));
  EXPECT_THAT(markdown, HasSubstr("| --- |"));
}

TEST_F(EvaluationFramesTest, NeedlesSayWhatAttentionFallsOn) {
  auto needles = start("attempt-1");
  needles.mutable_spec()->clear_tasks();
  auto& task = *needles.mutable_spec()->add_tasks()->mutable_multi_needle();
  task.set_file("file-1");
  task.set_format(pb::TEXT_FORMAT_RAW);
  task.add_lengths(512);
  task.add_depths_percent(50);
  task.set_n_needles(2);
  task.set_n_queries(1);
  task.set_samples_per_cell(3);
  const Said said = run(needles);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  std::map<std::string, pb::EvaluationRow> rows;
  for (const auto& row : report.results(0).rows()) {
    if (row.dims().empty()) rows[row.subject() + " " + row.metric()] = row;
  }
  double total = 0;
  for (const char* part : {"answer", "other_needles", "first_token", "question", "filler"}) {
    const auto& row = rows.at(std::string("base attention_") + part);
    EXPECT_GT(row.value(), 0) << part;
    EXPECT_EQ(row.interval(), pb::EvaluationRow::INTERVAL_BOOTSTRAP);
    EXPECT_EQ(row.n(), 3);
    total += row.value();
  }
  EXPECT_NEAR(total, 1, 1e-9);
  EXPECT_EQ(rows.at("again attention_noise").delta(), 0);
  const auto markdown = support::content_of(dir / "attempt-1/final/report.md");
  EXPECT_THAT(markdown, HasSubstr("| attention_noise |"));
}

// Scores of heads lie in tables, not in rows, and in a picture a subject.
TEST_F(EvaluationFramesTest, HeadsAreMeasuredAndPictured) {
  auto heads = start("attempt-1");
  heads.mutable_spec()->clear_tasks();
  auto& task = *heads.mutable_spec()->add_tasks()->mutable_head_analysis();
  task.set_file("file-1");
  task.set_format(pb::TEXT_FORMAT_RAW);
  task.set_n_sequences(3);
  task.set_seq_length(64);
  const Said said = run(heads);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  const auto& result = report.results(0);
  EXPECT_EQ(result.task(), "head_analysis");
  std::map<std::string, int> rows;  // by metric: over all, and of 3 layers; 2 subjects
  for (const auto& row : result.rows()) ++rows[row.metric()];
  for (const char* metric :
       {"entropy", "importance", "cosine_distance", "cka", "sparsity", "negative_mass"})
    EXPECT_EQ(rows[metric], 2 * (1 + 3)) << metric;
  std::map<std::string, pb::HeadTable> tables;
  for (const auto& table : result.head_tables())
    tables[table.subject() + " " + table.metric()] = table;
  ASSERT_EQ(tables.size(), 12U);
  const auto& entropy = tables.at("base entropy");
  ASSERT_EQ(entropy.layers_size(), 3);
  ASSERT_EQ(entropy.layers(0).value_size(), 4);
  double sum = 0;
  for (const auto& layer : entropy.layers()) {
    for (int h = 0; h < 4; ++h) {
      sum += layer.value(h);
      EXPECT_LE(layer.low(h), layer.value(h));
      EXPECT_GE(layer.high(h), layer.value(h));
    }
  }
  EXPECT_NEAR(sum / 12, result.rows(0).value(), 1e-9) << "the row over all is their mean";
  auto again = tables.at("again entropy");
  again.set_subject("base");
  EXPECT_EQ(again.SerializeAsString(), entropy.SerializeAsString()) << "the same weights";
  const auto& cosine = tables.at("base cosine_distance");
  EXPECT_TRUE(cosine.pairs());
  EXPECT_EQ(cosine.layers(2).value_size(), 6) << "pairs of 4 heads";
  for (const char* subject : {"base", "again"}) {
    const std::string name = std::string("heads-1-") + subject + ".svg";
    EXPECT_THAT(support::content_of(dir / "attempt-1/final" / name), HasSubstr("entropy"));
    EXPECT_THAT(support::content_of(dir / "attempt-1/final/report.md"), HasSubstr(name));
    EXPECT_THAT(support::content_of(dir / "attempt-1/final/checksums.json"), HasSubstr(name));
  }
}

TEST_F(EvaluationFramesTest, AResumedAttemptPublishesTheSameBytes) {
  const Said straight = run(start("attempt-1"));
  ASSERT_EQ(straight.steps.size(), 2U);
  auto resumed = start("attempt-2");
  resumed.set_checkpoint_dir(straight.steps[0].uri());
  resumed.set_checkpoint_manifest_sha256(straight.steps[0].manifest_sha256());
  // What is done is not computed again: its file is not even read.
  resumed.mutable_files(0)->set_path((dir / "gone").string());
  const Said said = run(resumed);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  ASSERT_EQ(said.steps.size(), 1U);
  EXPECT_EQ(said.steps[0].step(), 2U);
  EXPECT_EQ(said.result.result().manifest_sha256(), straight.result.result().manifest_sha256());

  resumed = start("attempt-3");
  resumed.set_checkpoint_dir(straight.steps[0].uri());
  resumed.set_checkpoint_manifest_sha256("not its hash");
  const Said anew = run(resumed);
  EXPECT_EQ(anew.steps.size(), 2U) << "a step that is not what was saved is computed again";
  EXPECT_EQ(anew.result.result().manifest_sha256(), straight.result.result().manifest_sha256());
}

TEST_F(EvaluationFramesTest, AFileInTheWrongFormatIsRefusedWithLineAndReason) {
  const Said said = run(start("attempt-1", "broken"));
  EXPECT_EQ(said.exit, 11);
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(said.result.code(), "invalid_evaluation_file");
  EXPECT_EQ(said.result.param(), "tasks[1].multiple_choice");
  EXPECT_THAT(said.result.message(), HasSubstr("broken.published (file-2): line 2"));
  EXPECT_EQ(said.result.message().find(dir.path().string()), std::string::npos)
      << "no path of the server: " << said.result.message();
  EXPECT_TRUE(said.steps.empty()) << "every file is read before anything is computed";
}

TEST_F(EvaluationFramesTest, WhatATaskRefusesIsNotTheFilesFault) {
  auto impossible = start("attempt-1");
  impossible.mutable_spec()->mutable_tasks()->RemoveLast();
  impossible.mutable_spec()->mutable_tasks(0)->mutable_perplexity()->set_context_length(1 << 20);
  const Said said = run(impossible);
  EXPECT_EQ(said.exit, 10);
  EXPECT_EQ(said.result.code(), "invalid_hyperparameter") << said.result.message();
  EXPECT_THAT(said.result.message(), HasSubstr("ask for less with context_length,"))
      << "in the words of the spec";
}

// Another worker would have to say the same: none goes out of service over it.
TEST_F(EvaluationFramesTest, ABaseWithoutATokenizerIsRefusedForGood) {
  const auto asked = start("attempt-1");
  std::filesystem::remove(dir / "models" / support::kTinyModel / "tokenizer.json");
  const Said said = run(asked);
  EXPECT_EQ(said.exit, 10) << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(said.result.param(), "subjects[0].model");
  EXPECT_THAT(said.result.message(), HasSubstr("no tokenizer.json"));
}

TEST_F(EvaluationFramesTest, AFileThatIsNotWhatWasUploadedIsNotMeasured) {
  auto asked = start("attempt-1");
  for (auto& file : *asked.mutable_files())
    file.set_sha256(base::sha256_hex(support::content_of(file.path())));
  EXPECT_EQ(run(asked).result.outcome(), internal::v1::OUTCOME_SUCCESS);
  asked.set_attempt_dir((dir / "attempt-2").string());
  std::filesystem::create_directories(dir / "attempt-2");
  std::ofstream(dir / "wiki", std::ios::app) << "One line more.\n";
  const Said said = run(asked);
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_RETRY);
  EXPECT_THAT(said.result.message(), HasSubstr("wiki.published (file-1) is not what was uploaded"));
  EXPECT_TRUE(said.steps.empty());
}

TEST_F(EvaluationFramesTest, AnAdapterOfOtherBytesAndABrokenBaseSayWhoseFaultItIs) {
  auto foreign = start("attempt-1");
  foreign.mutable_spec()->mutable_subjects(1)->set_adapter("ft:tiny:t::1");
  auto& adapter = *foreign.add_adapters();
  adapter.set_id("ft:tiny:t::1");
  adapter.set_path((dir / "none").string());
  adapter.set_content_sha256(std::string(64, '4'));
  const Said said = run(foreign);
  EXPECT_EQ(said.result.code(), "adapter_mismatch") << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);

  auto other = start("attempt-2");
  other.set_base_weights_sha256(std::string(64, 'a'));
  const Said broken = run(other);
  EXPECT_EQ(broken.exit, 17) << broken.result.message();
  EXPECT_EQ(broken.result.outcome(), internal::v1::OUTCOME_RELEASE);
}

TEST_F(EvaluationFramesTest, AStopEndsItInTheWordsOfItsReason) {
  using Stop = TrainerCommand::Stop;
  const std::pair<Stop::Reason, internal::v1::Outcome> ends[] = {
      {Stop::REASON_CANCEL, internal::v1::OUTCOME_CANCELLED},
      {Stop::REASON_PAUSE, internal::v1::OUTCOME_PAUSED},
      {Stop::REASON_DRAIN, internal::v1::OUTCOME_RELEASE}};
  for (const auto& [stop, wanted] : ends) {
    const Stop::Reason reason = stop;  // a lambda can't hold a part of a binding
    const internal::v1::Outcome outcome = wanted;
    const Said said = run(start("attempt-" + std::to_string(reason)), [&](auto& agent) {
      TrainerCommand command;
      command.mutable_stop()->set_reason(reason);
      EXPECT_TRUE(agent.write(command.SerializeAsString(), kPatience_ms).ok());
    });
    EXPECT_EQ(said.result.outcome(), outcome);
    EXPECT_EQ(said.exit, 16);
    EXPECT_FALSE(std::filesystem::exists(dir / ("attempt-" + std::to_string(reason)) / "final"));
  }
}

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
