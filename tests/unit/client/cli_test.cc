#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>

#include <array>
#include <sstream>
#include <vector>

#include "client/cli/exit_code.h"
#include "client/cli/head_grid.h"
#include "client/cli/job_view.h"
#include "client/cli/names.h"
#include "client/cli/output.h"
#include "client/cli/progress_view.h"
#include "client/cli/sampling_flags.h"
#include "client/cli/set_field.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

TEST(SamplingFlagsTest, OnlyWhatIsGivenIsAsked) {
  CLI::App app;
  SamplingFlags flags;
  flags.add_to(app);
  app.parse("--lambda-scale 0 --temperature 0.5");
  v1::GenerateRequest request;
  flags.apply(request);
  EXPECT_TRUE(request.has_dex_lambda_scale());
  EXPECT_EQ(request.dex_lambda_scale(), 0);
  EXPECT_EQ(request.temperature(), 0.5);
  EXPECT_FALSE(request.has_top_p());
  v1::GenerateRequest plain;
  SamplingFlags().apply(plain);
  EXPECT_FALSE(plain.has_dex_lambda_scale());
}

// api.md §8.
TEST(ExitCodeTest, FollowsTheCategoryOfTheError) {
  EXPECT_EQ(exit_code(base::Status()), 0);
  EXPECT_EQ(exit_code(base::not_found("RESOURCE_NOT_FOUND", "x")), 3);
  EXPECT_EQ(exit_code(base::unavailable("STORE_UNAVAILABLE", "x")), 4);
  EXPECT_EQ(exit_code(base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED", "x")), 6);
  EXPECT_EQ(exit_code(base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "x")), 130);
  EXPECT_EQ(exit_code(base::Status(
                base::unavailable("NO_WORKER", "x").with_metadata("category", "CAPACITY"))),
            6);

  v1::FineTuningJob job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(exit_code(job), 0);
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(exit_code(job), 5);
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_error()->set_category("USER");
  EXPECT_EQ(exit_code(job), 3);
  job.mutable_error()->set_code("gate_failed");
  EXPECT_EQ(exit_code(job), 7);
}

TEST(ExitCodeTest, AGateThatBlocksIsNotPassed) {
  v1::FineTuningJob job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  auto& result = *job.add_gate_results();
  result.set_on_fail("WARN");
  EXPECT_EQ(exit_code(job), 0);
  result.set_on_fail("BLOCK_ALIAS");
  EXPECT_EQ(exit_code(job), 7);
  result.set_passed(true);
  EXPECT_EQ(exit_code(job), 0);
}

TEST(OutputTest, JsonIsOneLineWithProtoNamesAndDefaults) {
  v1::FineTuningJob job;
  job.set_id("ftjob-1");
  job.mutable_progress()->set_step(7);
  const std::string json = to_json(job);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_THAT(json, HasSubstr("\"fine_tuned_model\":\"\""));
  EXPECT_THAT(json, HasSubstr("\"step\":7"));
  EXPECT_THAT(json, HasSubstr("\"attempt\":0"));
}

TEST(OutputTest, TablesAlignWideCharacters) {
  const std::string text = render({{"A", "B"}, {"λ→x", "1"}, {"long cell", "2"}}, Terminal{});
  EXPECT_EQ(text, "A          B\nλ→x        1\nlong cell  2\n");
}

TEST(NamesTest, ShortNamesDropThePrefix) {
  EXPECT_EQ(short_name(v1::JOB_STATE_VALIDATING_FILES), "validating_files");
  EXPECT_EQ(short_name(v1::JOB_STATE_UNSPECIFIED), "");
  EXPECT_EQ(short_name(v1::BranchEffect::VERDICT_INERT), "inert");
  EXPECT_EQ(words("loading_model"), "loading model");
}

// What lists print in one format.
std::string listed(Format format, const std::vector<std::string>& ids, std::string* err = nullptr) {
  std::ostringstream out;
  std::ostringstream notes;
  Output output(format, Terminal{}, false, out, notes);
  v1::ListFineTuningJobsResponse reply;
  std::vector<v1::FineTuningJob> jobs;
  for (const auto& id : ids) {
    reply.add_jobs()->set_id(id);
    jobs.push_back(reply.jobs(reply.jobs_size() - 1));
  }
  output.list(reply, ids, job_table(jobs), "no such jobs");
  if (err != nullptr) *err = notes.str();
  return out.str();
}

TEST(OutputTest, ListsGiveOneIdALineATableOrTheReply) {
  EXPECT_EQ(listed(Format::kId, {"ftjob-1", "ftjob-2"}), "ftjob-1\nftjob-2\n");
  EXPECT_EQ(listed(Format::kId, {}), "");
  EXPECT_THAT(listed(Format::kTable, {"ftjob-1"}), HasSubstr("ID       STATE"));
  EXPECT_THAT(listed(Format::kJson, {}), HasSubstr("\"jobs\":[]"));
}

TEST(OutputTest, JsonlOfAListIsOneRowALine) {
  std::istringstream lines(listed(Format::kJsonl, {"ftjob-1", "ftjob-2"}));
  for (const char* id : {"ftjob-1", "ftjob-2"}) {
    std::string line;
    std::getline(lines, line);
    v1::FineTuningJob job;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &job).ok()) << line;
    EXPECT_EQ(job.id(), id);
  }
  EXPECT_EQ(lines.peek(), std::istringstream::traits_type::eof());
  EXPECT_EQ(listed(Format::kJsonl, {}), "");
}

// -v is for what the server says beside its sentence: the request id to look for in its logs.
TEST(OutputTest, OnlyVerboseFailuresHaveAllThatTheServerSaid) {
  const auto shown = [](bool verbose) {
    std::ostringstream out, err;
    Output output(Format::kTable, Terminal{}, false, out, err);
    if (verbose) output.be_verbose();
    EXPECT_EQ(output.failure(base::not_found("RESOURCE_NOT_FOUND", "There is no job 'x'.")
                                 .with_metadata("request_id", "req-7")),
              3);
    EXPECT_EQ(output.last_failure().code(), base::Code::kNotFound);
    return err.str();
  };
  EXPECT_THAT(shown(true), HasSubstr("\n  request_id req-7\n"));
  EXPECT_EQ(shown(false), "error There is no job 'x'.  [RESOURCE_NOT_FOUND]\n");
}

TEST(OutputTest, AnEmptyTableSaysWhatToDoOnStderr) {
  std::string err;
  EXPECT_EQ(listed(Format::kTable, {}, &err), "");
  EXPECT_EQ(err, "no such jobs\n");
  listed(Format::kJson, {}, &err);
  EXPECT_EQ(err, "");
}

TEST(JobViewTest, TablesShowWordsNotNamesOfEnums) {
  v1::FineTuningJob job;
  job.set_id("ftjob-1");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_waiting_reason(v1::WAITING_REASON_CAPACITY);
  EXPECT_THAT(render(job_table({job}), Terminal{}), HasSubstr("queued (for a worker)"));
  job.set_waiting_reason(v1::WAITING_REASON_MODEL);
  EXPECT_THAT(render(job_table({job}), Terminal{}),
              HasSubstr("queued (no worker has its base model and knows its tasks)"));
  EXPECT_THAT(render(job_details(job), Terminal{}),
              HasSubstr("queued (no worker has its base model and knows its tasks)"));
  job.set_waiting_reason(v1::WAITING_REASON_UNSPECIFIED);  // as of what does not wait
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_phase(v1::JOB_PHASE_LOADING_MODEL);
  EXPECT_THAT(render(job_details(job), Terminal{}), HasSubstr("phase  loading model"));
  job.mutable_branch_effect()->set_verdict(v1::BranchEffect::VERDICT_WEAK);
  EXPECT_THAT(render(job_details(job), Terminal{}), HasSubstr("weak (0.00000"));
  // A control without a branch has no effect to speak of.
  job.mutable_branch_effect()->set_verdict(v1::BranchEffect::VERDICT_NOT_APPLICABLE);
  EXPECT_THAT(render(job_details(job), Terminal{}), testing::Not(HasSubstr("branch")));
}

TEST(JobViewTest, ValuesAreAsSetTakesThemAndDefaultsAreLeftOut) {
  v1::FineTuningJobSpec spec;
  spec.mutable_dex()->mutable_lambda()->set_schedule(v1::Lambda::SCHEDULE_PAPER_EQ4);
  spec.mutable_hyperparameters()->set_learning_rate(2e-5);
  spec.mutable_hyperparameters()->set_packing(true);
  spec.set_seed(7);
  google::protobuf::Map<std::string, std::string> sources;
  sources["dex.lambda.schedule"] = "PRESET";
  sources["hyperparameters.learning_rate"] = "USER";
  sources["hyperparameters.packing"] = "DEFAULT";
  const Table expected = {{"FIELD", "VALUE", "FROM"},
                          {"seed", "7", ""},
                          {"dex.lambda.schedule", "paper_eq4", "preset"},
                          {"hyperparameters.learning_rate", "2e-05", "user"}};
  EXPECT_EQ(value_table(spec, sources), expected);
}

TEST(JobViewTest, AMapHasARowForEachEntry) {
  v1::FineTuningJobSpec spec;
  auto& weights = *spec.mutable_hyperparameters()->mutable_group_weights();
  weights["en"] = 0.5;
  weights["cy"] = 2;
  google::protobuf::Map<std::string, std::string> sources;
  sources["hyperparameters.group_weights"] = "USER";
  const Table expected = {{"FIELD", "VALUE", "FROM"},
                          {"hyperparameters.group_weights", "cy=2", "user"},
                          {"hyperparameters.group_weights", "en=0.5", "user"}};
  EXPECT_EQ(value_table(spec, sources), expected);
  // As --set takes them.
  v1::FineTuningJobSpec set;
  ASSERT_TRUE(set_field(set, "hyperparameters.group_weights", "cy=2").ok());
  ASSERT_TRUE(set_field(set, "hyperparameters.group_weights", "en=0.5").ok());
  EXPECT_EQ(value_table(set, sources), expected);
}

TEST(JobViewTest, AnEstimateShowsItsCostWithTheBandOfItsTime) {
  v1::Estimate estimate;
  estimate.set_expected_duration_seconds(100);
  estimate.set_low_seconds(60);
  estimate.set_high_seconds(250);
  EXPECT_THAT(estimate_text(estimate, Terminal{}), testing::Not(HasSubstr("cost")));
  estimate.set_cost(1.2);
  estimate.set_cost_currency("EUR");
  EXPECT_THAT(estimate_text(estimate, Terminal{}),
              testing::ContainsRegex("cost +1\\.20 EUR  \\(0\\.72 to 3\\.00\\)"));
}

TEST(JobViewTest, ARunningJobShowsHowLongAgoItsWorkerWasHeardOf) {
  v1::FineTuningJob job;
  EXPECT_EQ(heartbeat_text(job, 1'000'000), "");
  job.mutable_heartbeat_time()->set_seconds(1'000);
  job.mutable_lease_expire_time()->set_seconds(1'030);
  EXPECT_EQ(heartbeat_text(job, 1'004'000), "4 s ago, lease for 26 s");
  EXPECT_EQ(heartbeat_text(job, 1'040'000),
            "40 s ago, lease over for 10 s: its worker is given up soon");
  EXPECT_EQ(heartbeat_text(job, 999'000), "0 s ago, lease for 31 s");
}

// method.md §5: of each value the page says whose it is, the paper's or this project's.
TEST(JobViewTest, ThePresetsValuesSayWhoseTheyAre) {
  v1::EffectiveConfig config;
  auto& lambda = *config.mutable_spec()->mutable_dex()->mutable_lambda();
  lambda.set_schedule(v1::Lambda::SCHEDULE_PAPER_EQ4);
  lambda.set_anneal_fraction(0.5);
  config.mutable_spec()->mutable_hyperparameters()->set_learning_rate(2e-5);
  auto& sources = *config.mutable_sources();
  sources["dex.lambda.schedule"] = "PRESET (paper)";
  sources["dex.lambda.anneal_fraction"] = "PRESET (ours)";
  sources["hyperparameters.learning_rate"] = "USER";
  config.mutable_spec()->set_max_retries(2);
  sources["max_retries"] = "DEFAULT (ours)";
  const Table expected = {{"FIELD", "VALUE", "FROM"},
                          {"dex.lambda.schedule", "paper_eq4", "preset (paper)"},
                          {"dex.lambda.anneal_fraction", "0.5", "preset (ours)"},
                          {"hyperparameters.learning_rate", "2e-05", "user"}};
  EXPECT_EQ(value_table(config.spec(), config.sources()), expected);
}

// method.md §12: a number of updates says something beside the number of all.
TEST(JobViewTest, TheAnnealingIsShownAsItsShareOfTheUpdates) {
  v1::Estimate estimate;
  estimate.set_total_steps(180);
  auto& spec = *estimate.mutable_effective_config()->mutable_spec();
  EXPECT_THAT(estimate_text(estimate, Terminal{}), testing::Not(HasSubstr("annealing")));
  spec.mutable_dex()->mutable_lambda()->set_anneal_fraction(0.5);
  EXPECT_THAT(estimate_text(estimate, Terminal{}),
              testing::ContainsRegex("updates +about 180 of about "));
  EXPECT_THAT(estimate_text(estimate, Terminal{}),
              testing::ContainsRegex("annealing +90 of about 180 updates \\(T/N 0.50\\)\n"));
  spec.mutable_hyperparameters()->set_max_steps(180);
  spec.mutable_dex()->mutable_lambda()->set_anneal_steps(60);
  EXPECT_THAT(estimate_text(estimate, Terminal{}),
              testing::ContainsRegex("annealing +60 of 180 updates \\(T/N 0.33\\)\n"));

  v1::FineTuningJob job;
  *job.mutable_effective_config() = estimate.effective_config();
  EXPECT_THAT(render(job_details(job), Terminal{}), testing::Not(HasSubstr("annealing")));
  job.mutable_effective_config()->mutable_spec()->mutable_dex()->mutable_lambda()->set_anneal_steps(
      3000);
  job.mutable_progress()->set_total_steps(232);  // as the trainer has counted them
  EXPECT_THAT(
      render(job_details(job), Terminal{}),
      testing::ContainsRegex("annealing +232 of 232 updates \\(T/N 1.00\\), asked for 3000"));
}

TEST(JobViewTest, GatesAreShownAsAskedAndAsFound) {
  v1::FineTuningJobSpec spec;
  auto& gate = *spec.add_gates();
  gate.set_name("quality");
  gate.set_task("held_out");
  gate.set_metric("loss");
  gate.set_op(v1::Gate::OP_LE);
  gate.set_threshold(0);
  gate.set_against(v1::Gate::AGAINST_BASE);
  gate.set_use(v1::Gate::USE_BOUND);
  gate.set_on_fail(v1::Gate::ON_FAIL_FAIL_JOB);
  const Table expected = {
      {"FIELD", "VALUE", "FROM"},
      {"gates.quality", "held_out.loss - base <= 0, high end, else fail_job", "user"}};
  EXPECT_EQ(value_table(spec, {}), expected);

  v1::FineTuningJob job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  auto& result = *job.add_gate_results();
  result.set_gate("quality");
  result.set_condition("held_out.loss - base <= 0, high end");
  result.set_value(-0.02);
  result.set_low(-0.05);
  result.set_high(0.01);
  job.set_promotable(false);
  job.mutable_metrics()->set_base_kl(0.0312);
  job.mutable_metrics()->set_gradient_range(0.625);
  const std::string text = render(job_details(job), Terminal{});
  EXPECT_THAT(text, HasSubstr("not passed: held_out.loss - base <= 0, high end; -0.0200 "
                              "(-0.0500 to 0.0100)"));
  EXPECT_THAT(text, HasSubstr("0.0312 nats a token"));
  EXPECT_THAT(text, testing::ContainsRegex("gradient range +0.62 of the median norm"));
  result.set_n(5);
  EXPECT_THAT(render(job_details(job), Terminal{}),
              HasSubstr("0.0100); fewer than 6 may agree by chance"));
  result.set_not_measured("rows.csv: line 2: is short");
  EXPECT_THAT(render(job_details(job), Terminal{}),
              HasSubstr("high end; not measured: rows.csv: line 2: is short"));
  EXPECT_THAT(text, testing::ContainsRegex("promotable +no"));
}

TEST(HumanTest, ShortFormsForPeople) {
  EXPECT_EQ(human_seconds(42), "42 s");
  EXPECT_EQ(human_seconds(200), "3 m 20 s");
  EXPECT_EQ(human_seconds(7260), "2 h 1 m");
  EXPECT_EQ(human_bytes(1'234'000), "1.2 MB");
  EXPECT_EQ(human_count(134'515'008), "135 M");
}

TEST(JobProgressTest, OffATerminalItPrintsAboutTwentyPlainLines) {
  std::ostringstream out;
  std::ostringstream err;
  Output output(Format::kTable, Terminal{}, false, out, err);
  JobProgress progress(output);
  v1::FineTuningEvent start;
  start.mutable_training_start()->set_total_steps(200);
  progress.show(start);
  for (uint32_t step = 1; step <= 200; ++step) {
    v1::FineTuningEvent event;
    event.mutable_metrics()->set_step(step);
    event.mutable_metrics()->set_train_loss(3.5);
    event.mutable_metrics()->set_trained_tokens(1000 * step);
    event.mutable_metrics()->set_tokens_per_second(500);
    progress.show(event);
  }
  // The last evaluation's point by layer is of the same step.
  v1::FineTuningEvent by_layer;
  by_layer.mutable_metrics()->set_step(200);
  by_layer.mutable_metrics()->add_lambda(0.3F);
  progress.show(by_layer);
  const std::string text = err.str();
  EXPECT_THAT(text, HasSubstr("step 100/200  loss 3.5000  λ 0.0000  500 tok/s  3 m 20 s left\n"));
  const size_t last = text.find("step 200/200");
  EXPECT_EQ(text.find("step 200/200", last + 1), std::string::npos);
  EXPECT_EQ(text.find(" 0 tok/s"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("step 200/200  loss 3.5000"));
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 20);
  EXPECT_LE(lines, 22);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_TRUE(out.str().empty());
}

TEST(JobProgressTest, TheBranchOfTheLastEvaluationStandsBesideTheLoss) {
  std::ostringstream out, err;
  Output output(Format::kTable, Terminal{}, false, out, err);
  JobProgress progress(output);
  v1::FineTuningEvent start, evaluated, step;
  start.mutable_training_start()->set_total_steps(2);
  evaluated.mutable_eval_complete()->set_step(1);
  evaluated.mutable_eval_complete()->set_branch_ratio(0.0125);
  step.mutable_metrics()->set_step(2);
  step.mutable_metrics()->set_lambda_mean(0.5);
  step.mutable_metrics()->set_tokens_per_second(500);
  for (const auto* event : {&start, &evaluated, &step}) progress.show(*event);
  EXPECT_THAT(err.str(), HasSubstr("step 2/2  loss 0.0000  λ 0.5000  branch 0.01250  500 tok/s"));
}

TEST(HeadGridTest, ShowsScoresAndChosenHeads) {
  v1::HeadSelectionComplete selection;
  selection.set_criterion("ENTROPY");
  selection.set_selected_heads(3);
  selection.set_selected_ratio(0.5);
  for (const auto& [scores, chosen] :
       {std::pair(std::array{1.0F, 2.0F, 3.0F}, std::vector<uint32_t>{2}),
        std::pair(std::array{5.0F, 1.5F, 4.0F}, std::vector<uint32_t>{0, 2})}) {
    auto& layer = *selection.add_layers();
    layer.mutable_entropy()->Add(scores.begin(), scores.end());
    layer.mutable_selected()->Add(chosen.begin(), chosen.end());
  }
  EXPECT_EQ(head_grid_text(selection),
            "ENTROPY chose 3 heads, 50 % of all, before training; chosen ones in brackets\n"
            "\n"
            "entropy: 1 · to █ 5\n"
            "layer  0  1  2\n"
            "    0  ·  ░ [▒]\n"
            "    1 [█] · [▓]\n");
}

TEST(HeadGridTest, ShowsTheChoiceAloneWhereNothingWasMeasured) {
  v1::HeadSelectionComplete selection;
  selection.set_criterion("EXPLICIT");
  selection.set_selected_heads(1);
  selection.set_selected_ratio(0.25);
  selection.set_step(20);
  selection.add_layers()->add_selected(1);
  selection.add_layers();
  const std::string text = head_grid_text(selection);
  EXPECT_THAT(text, HasSubstr("before step 21"));
  EXPECT_THAT(text, HasSubstr("    0    [x]\n    1       \n"));
}

}  // namespace
}  // namespace dex::cli
