// Evaluations that succeed, as jobs (evaluation_fixture.h). What the numbers mean is tested where
// the tasks are.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "services/base/sha256.h"
#include "services/statistics/item_rows.h"
#include "tests/support/content_of.h"
#include "tests/unit/worker/serve/evaluation_fixture.h"
#include "worker/evaluate/shipped_text.h"
#include "worker/serve/evaluate_command.h"
#include "worker/serve/evaluation_messages.h"
#include "worker/serve/evaluation_report.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;

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

// Each step holds the samples of all tasks before: more than two would grow with their square.
TEST_F(EvaluationFramesTest, KeepsItsLastTwoSteps) {
  auto asked = start("attempt-1");
  pb::EvaluationTask third = asked.spec().tasks(0);
  third.mutable_perplexity()->set_context_length(64);
  *asked.mutable_spec()->add_tasks() = third;
  const Said said = run(asked);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  EXPECT_EQ(said.steps.size(), 3U);
  EXPECT_FALSE(std::filesystem::exists(dir / "attempt-1/step-1"));
  EXPECT_TRUE(std::filesystem::exists(dir / "attempt-1/step-2/MANIFEST.json"));
  EXPECT_EQ(load_files(dir / "attempt-1/step-3", "MANIFEST.json",
                       said.steps.back().manifest_sha256(), "samples-")
                .size(),
            3U);
}

// Two questions of two subjects: a line each, the second subject's beside the first one's score.
TEST_F(EvaluationFramesTest, SamplesArePublishedATask) {
  const Said said = run(start("attempt-1"));
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto files = load_files(dir / "attempt-1/final", "checksums.json",
                                said.result.result().manifest_sha256(), "samples-");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].first, "samples-1.jsonl");
  EXPECT_EQ(files[1].first, "samples-2.jsonl");
  std::vector<pb::EvaluationSample> samples;
  std::istringstream lines(files[1].second);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &samples.emplace_back()).ok())
        << line;
  }
  ASSERT_EQ(samples.size(), 4U);
  EXPECT_EQ(samples[0].task(), "multiple_choice");
  EXPECT_EQ(samples[0].subject(), "base");
  EXPECT_EQ(samples[1].line(), 2);
  EXPECT_EQ(samples[1].expected(), "3");
  EXPECT_THAT(samples[1].prompt(), HasSubstr("Question: What is three?"));
  EXPECT_EQ(samples[1].logprobs_size(), 4);
  EXPECT_FALSE(samples[1].has_baseline_score());
  EXPECT_EQ(samples[3].subject(), "again");
  EXPECT_EQ(samples[3].output(), samples[1].output()) << "the same weights";
  EXPECT_TRUE(samples[3].has_baseline_score());
  EXPECT_EQ(samples[3].baseline_score(), samples[1].score());
}

// What another evaluation can be compared with: of each row the numbers by item, and of which
// bytes.
TEST_F(EvaluationFramesTest, NumbersByItemArePublishedATask) {
  auto asked = start("attempt-1");
  for (auto& file : *asked.mutable_files()) file.set_sha256(base::sha256_file(file.path()).value());
  const Said said = run(asked);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const std::string& hash = said.result.result().manifest_sha256();
  const auto files = load_files(dir / "attempt-1/final", "checksums.json", hash, "items-");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].first, "items-1.jsonl");
  EXPECT_EQ(files[1].first, "items-2.jsonl");
  const auto report = load_report(dir / "attempt-1/final", "checksums.json", hash);
  for (int task = 0; task < 2; ++task) {
    const auto items = statistics::parse_items(files[static_cast<size_t>(task)].second);
    ASSERT_TRUE(items.ok()) << items.status().to_string();
    EXPECT_EQ(items->task, report.results(task).task());
    ASSERT_EQ(items->files.size(), 1U);
    EXPECT_EQ(items->files[0], asked.files(task).sha256());
    ASSERT_EQ(static_cast<int>(items->rows.size()), report.results(task).rows_size());
    for (const auto& row : report.results(task).rows()) {
      std::map<std::string, std::string> dims;
      for (const auto& [key, value] : row.dims()) dims[key] = value;
      const auto* found = statistics::find_row(*items, row.metric(), dims, row.subject());
      ASSERT_NE(found, nullptr) << row.metric();
      EXPECT_EQ(statistics::figure(found->numbers, found->rule), row.value()) << row.metric();
      EXPECT_EQ(static_cast<int64_t>(found->items.size()), row.n());
    }
  }
  EXPECT_EQ(load_files(dir / "attempt-1/step-1", "MANIFEST.json",
                       said.steps.at(0).manifest_sha256(), "items-")
                .size(),
            1U)
      << "a later attempt goes on with what the first has kept";
}

// A subject in eight bits has weights beside the others', and the numbers of `dex-engine evaluate
// --dtype int8`.
TEST_F(EvaluationFramesTest, ASubjectInEightBitsIsMeasuredBesideTheSameAsStored) {
  auto asked = start("attempt-1");
  asked.mutable_spec()->mutable_subjects(1)->set_dtype(pb::EvaluationSubject::DTYPE_INT8);
  const Said said = run(asked);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  std::map<std::string, pb::EvaluationRow> rows;
  for (const auto& row : report.results(0).rows()) rows[row.subject() + " " + row.metric()] = row;
  const auto alone = [&](const std::string& dtype) {
    EvaluateCommand command;
    command.task = "perplexity";
    command.model = dir / "models" / support::kTinyModel;
    command.file = dir / "wiki";
    command.perplexity.context_length = 128;
    command.threads = 1;
    command.dtype = dtype;
    command.json = true;
    std::ostringstream out, log;
    EXPECT_EQ(run_evaluation(command, signals, clock, out, log), 0) << log.str();
    const auto parsed = nlohmann::json::parse(out.str());
    for (const auto& row : parsed.at("rows"))
      if (row.at("metric") == "loss") return row.at("value").get<double>();
    return std::nan("");
  };
  EXPECT_EQ(rows.at("base loss").value(), alone(""));
  EXPECT_EQ(rows.at("again loss").value(), alone("int8"));
  EXPECT_NE(rows.at("again loss").value(), rows.at("base loss").value());
  EXPECT_NEAR(rows.at("again loss").delta(),
              rows.at("again loss").value() - rows.at("base loss").value(), 1e-9);
}

// The file is sparse: no worker has so much memory, and no disk needs to hold it.
TEST_F(EvaluationFramesTest, TheBaseInEightBitsBesideItselfHasToFit) {
  auto asked = start("attempt-1");
  asked.mutable_spec()->mutable_subjects(1)->set_dtype(pb::EvaluationSubject::DTYPE_INT8);
  std::filesystem::resize_file(dir / "models" / support::kTinyModel / "model.safetensors",
                               uintmax_t{1} << 42);
  const Said said = run(asked);
  EXPECT_EQ(said.result.code(), "out_of_memory") << said.result.message();
  EXPECT_THAT(said.result.message(), HasSubstr("in eight bits 2048.0 GiB"));
  EXPECT_THAT(said.result.message(), HasSubstr("in an evaluation of their own"));
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

// What another evaluation over it can be compared with: the numbers say which text it was.
TEST_F(EvaluationFramesTest, NeedlesAreHiddenInTheShippedTextWhereThereIsNoFile) {
  auto needles = start("attempt-1");
  needles.clear_files();
  needles.mutable_spec()->clear_tasks();
  auto& task = *needles.mutable_spec()->add_tasks()->mutable_multi_needle();
  task.add_lengths(512);
  task.add_depths_percent(50);
  task.set_samples_per_cell(2);
  const Said said = run(needles);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const std::string& hash = said.result.result().manifest_sha256();
  const auto files = load_files(dir / "attempt-1/final", "checksums.json", hash, "items-");
  ASSERT_EQ(files.size(), 1U);
  const auto items = statistics::parse_items(files[0].second);
  ASSERT_TRUE(items.ok()) << items.status().to_string();
  EXPECT_EQ(items->files, std::vector<std::string>{evaluate::shipped_text_sha256()});
  const auto markdown = support::content_of(dir / "attempt-1/final/report.md");
  EXPECT_THAT(markdown, HasSubstr("## multi_needle: the shipped text (6 needles, 2 asked for)"));
}

TEST_F(EvaluationFramesTest, SeveralNumbersOfNeedlesHaveAHeatMapEach) {
  auto needles = start("attempt-1");
  needles.mutable_spec()->clear_tasks();
  auto& task = *needles.mutable_spec()->add_tasks()->mutable_multi_needle();
  task.set_file("file-1");
  task.set_format(pb::TEXT_FORMAT_RAW);
  task.add_lengths(512);
  task.add_depths_percent(50);
  for (const uint32_t count : {1U, 3U}) task.add_needle_counts(count);
  task.set_samples_per_cell(2);
  const Said said = run(needles);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  EXPECT_EQ(report.results(0).settings(), "1 needle, 1 asked for; 3 needles, 2 asked for");
  const auto markdown = support::content_of(dir / "attempt-1/final/report.md");
  for (const char* title : {"accuracy, base, needles 1 ", "accuracy, base, needles 3 ",
                            "accuracy, again, needles 1 ", "accuracy, again, needles 3 "})
    EXPECT_THAT(markdown, HasSubstr(title));
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
  for (const char* metric : {"entropy", "importance", "cosine_distance", "cka", "sparsity",
                             "negative_share", "negative_mass"})
    EXPECT_EQ(rows[metric], 2 * (1 + 3)) << metric;
  std::map<std::string, pb::HeadTable> tables;
  for (const auto& table : result.head_tables())
    tables[table.subject() + " " + table.metric()] = table;
  ASSERT_EQ(tables.size(), 14U);
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

// Answers are written beside the report, and a later attempt need not ask for them again.
TEST_F(EvaluationFramesTest, InstructionsAreAnsweredIntoFiles) {
  std::ofstream(dir / "alpaca") << R"([{"instruction": "Name a cat.", "dataset": "d"},)"
                                << R"( {"instruction": "Name a dog."}])";
  auto asked = start("attempt-1");
  asked.mutable_files(1)->set_path((dir / "alpaca").string());
  asked.mutable_spec()->mutable_tasks(1)->Clear();  // in multiple_choice's place
  auto& task = *asked.mutable_spec()->mutable_tasks(1)->mutable_instructions();
  task.set_file("file-2");
  task.set_max_tokens(4);
  asked.mutable_spec()->mutable_tasks()->SwapElements(0, 1);
  const Said said = run(asked);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  const auto& result = report.results(0);
  EXPECT_EQ(result.task(), "instructions");
  EXPECT_TRUE(result.rows().empty());
  const std::vector<std::string> names = {
      "instructions-1-outputs-base.json", "instructions-1-outputs-again.json",
      "instructions-1-pairs-again.json", "instructions-1-pairs-again.key.json"};
  EXPECT_EQ(std::vector<std::string>(result.files().begin(), result.files().end()), names);
  const auto final_dir = dir / "attempt-1/final";
  for (const std::string& name : names) {
    EXPECT_THAT(support::content_of(final_dir / "checksums.json"), HasSubstr(name));
    EXPECT_THAT(support::content_of(final_dir / "report.md"), HasSubstr("(" + name + ")"));
  }
  const std::string outputs = support::content_of(final_dir / names[0]);
  EXPECT_THAT(outputs, HasSubstr(R"("instruction": "Name a cat.")"));
  EXPECT_THAT(outputs, HasSubstr(R"("generator": "base")"));
  EXPECT_EQ(support::content_of(final_dir / names[2]).find("again"), std::string::npos)
      << "nothing in a pair tells who is who";
  EXPECT_THAT(support::content_of(final_dir / names[3]), HasSubstr("again"));

  auto resumed = asked;
  resumed.set_attempt_dir((dir / "attempt-2").string());
  std::filesystem::create_directories(dir / "attempt-2");
  resumed.set_checkpoint_dir(said.steps.at(0).uri());
  resumed.set_checkpoint_manifest_sha256(said.steps.at(0).manifest_sha256());
  resumed.mutable_files(1)->set_path((dir / "gone").string());
  const Said again = run(resumed);
  ASSERT_EQ(again.result.outcome(), internal::v1::OUTCOME_SUCCESS) << again.result.message();
  EXPECT_EQ(again.result.result().manifest_sha256(), said.result.result().manifest_sha256());
}

TEST_F(EvaluationFramesTest, AScaleOfLambdaIsItsSubjectsAlone) {
  auto asked = start("attempt-1");
  auto& adapter = *asked.add_adapters();
  adapter.set_id("ft:tiny:t::1");
  adapter.set_path((dir / "none").string());
  for (auto& subject : *asked.mutable_spec()->mutable_subjects())
    subject.set_adapter("ft:tiny:t::1");
  asked.mutable_spec()->mutable_subjects(1)->set_dex_lambda_scale(0);
  const EvaluationJob job = evaluation_job(asked);
  EXPECT_FALSE(job.subjects.subjects.at(0).dex_lambda_scale.has_value());
  EXPECT_EQ(job.subjects.subjects.at(1).dex_lambda_scale.value_or(1), 0);
}

}  // namespace
}  // namespace dex::serve
