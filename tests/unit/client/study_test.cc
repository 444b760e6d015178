#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/study_report.h"

namespace dex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// scipy.stats.t.interval(0.95, n - 1, mean, sem) of these numbers.
TEST(StudyStatisticsTest, StudentIntervals) {
  const Interval three = t_interval({2.1, 2.2, 2.4});
  EXPECT_NEAR(three.mean, 2.2333333, 1e-6);
  EXPECT_NEAR(three.low, 1.8538750, 1e-6);
  EXPECT_NEAR(three.high, 2.6127916, 1e-6);
  const Interval one = t_interval({2.5});
  EXPECT_EQ(one.mean, 2.5);
  EXPECT_FALSE(one.known());
  EXPECT_FALSE(one.excludes_zero());
  EXPECT_EQ(text(one, 4), "2.5000 (one run)");
  EXPECT_EQ(text(t_interval({-0.2, -0.4}), 1), "-0.3 (-1.6 to 1.0)");
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

// Equal values have no interval: one of no width would call any difference a real one.
TEST(StudyStatisticsTest, ValuesWithoutASpreadSayNothingOfOthers) {
  using Values = std::vector<double>;
  for (const Values& values :
       {Values{0.02, 0.02, 0.02}, Values{0.30 - 0.28, 0.40 - 0.38, 0.50 - 0.48}}) {
    const Interval same = t_interval(values);
    EXPECT_NEAR(same.mean, 0.02, 1e-12);
    EXPECT_FALSE(same.known());
    EXPECT_FALSE(same.excludes_zero());
    EXPECT_EQ(text(same, 2), "0.02 (the same in all 3)");
    EXPECT_EQ(to_json(same).at("same"), true);
    EXPECT_FALSE(to_json(same).contains("low"));
  }
  EXPECT_EQ(text(t_interval({0, 0}), 1), "0.0 (the same in all 2)");
  EXPECT_TRUE(t_interval({0.02, 0.02, 0.0201}).excludes_zero());
}

StudyPlan plan() {
  StudyPlan plan;
  plan.common.model = "smollm2-135m-instruct";
  plan.common.training_file = "file-1";
  plan.common.validation_file = "file-2";
  plan.common.max_steps = "8";
  plan.methods = {"dex", "kvo_only"};
  plan.seeds = {1, 2, 3};
  return plan;
}

TEST(StudyPlanTest, RunsGoSeedBySeed) {
  std::vector<std::string> names;
  for (const auto& run : runs_of(plan())) names.push_back(run.name());
  EXPECT_THAT(names, ElementsAre("dex/seed-1", "kvo_only/seed-1", "dex/seed-2", "kvo_only/seed-2",
                                 "dex/seed-3", "kvo_only/seed-3"));
}

TEST(StudyPlanTest, AllMethodsHaveTheSameBudgetAndSeed) {
  const auto dex = spec_of(plan(), {"dex", 2}).value();
  const auto control = spec_of(plan(), {"kvo_only", 2}).value();
  EXPECT_EQ(dex.dex().preset(), "auto");
  EXPECT_TRUE(control.has_kvo_only());
  EXPECT_EQ(control.kvo_only().preset(), "auto");
  for (const auto& spec : {dex, control}) {
    EXPECT_EQ(spec.seed(), 2);
    EXPECT_EQ(spec.hyperparameters().max_steps(), 8u);
  }
  auto open = plan();
  open.common.max_steps.clear();
  EXPECT_THAT(spec_of(open, {"dex", 1}).status().message(), HasSubstr("--max-steps"));
}

// method.md §2.7: kvo_only is the same training without the branch, whatever dex's preset.
TEST(StudyPlanTest, TheControlHasDexsPresetAndTheRivalsHaveNone) {
  auto published = plan();
  published.preset = "paper";
  EXPECT_EQ(spec_of(published, {"dex", 1})->dex().preset(), "paper");
  EXPECT_EQ(spec_of(published, {"kvo_only", 1})->kvo_only().preset(), "paper");
  EXPECT_TRUE(spec_of(published, {"lora", 1})->has_lora());
}

TEST(StudyPlanTest, AMethodsOwnFieldsAreForItsRunsAlone) {
  auto both = plan();
  both.common.sets = {"lora.r=4", "evaluation.max_tokens=8192"};
  const auto lora = spec_of(both, {"lora", 1}).value();
  EXPECT_EQ(lora.lora().r(), 4u);
  const auto dex = spec_of(both, {"dex", 1}).value();
  EXPECT_TRUE(dex.has_dex());
  for (const auto& spec : {lora, dex}) EXPECT_EQ(spec.evaluation().max_tokens(), 8192u);
}

TEST(StudyPlanTest, TheSameJobHasTheSameRequestId) {
  const auto id = [](const StudyRun& run) { return request_id_of(spec_of(plan(), run).value()); };
  EXPECT_EQ(id({"dex", 1}), id({"dex", 1}));
  EXPECT_NE(id({"dex", 1}), id({"dex", 2}));
  EXPECT_NE(id({"dex", 1}), id({"kvo_only", 1}));
  EXPECT_LE(id({"dex", 1}).size(), 64u);
}

TEST(StudyPlanTest, ASuccessorHasARequestIdOfItsOwn) {
  const std::string first = request_id_of(spec_of(plan(), {"dex", 1}).value());
  const std::string second = request_id_after(first, "ftjob-1");
  EXPECT_EQ(second, request_id_after(first, "ftjob-1"));
  EXPECT_NE(second, first);
  EXPECT_NE(second, request_id_after(first, "ftjob-2"));
  EXPECT_NE(second, request_id_after(second, "ftjob-1"));
  EXPECT_LE(second.size(), 64u);
}

TEST(StudyPlanTest, OnlyWhatNeedNotHappenAgainIsTriedAgain) {
  v1::FineTuningJob job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(is_tried_again(job));
  EXPECT_EQ(failure_of(job), "");
  job.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(is_tried_again(job));
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(is_tried_again(job));
  EXPECT_EQ(failure_of(job), "the job was cancelled (the same command tries it again)");
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_error()->set_code("worker_lost");
  job.mutable_error()->set_message("The worker went away.");
  job.mutable_error()->set_category("SYSTEM");
  EXPECT_TRUE(is_tried_again(job));
  job.mutable_error()->set_category("CAPACITY");
  job.mutable_error()->set_retryable(true);
  EXPECT_TRUE(is_tried_again(job));
  job.mutable_error()->set_code("non_finite_loss");
  job.mutable_error()->set_message("The loss is nan.");
  job.mutable_error()->set_category("USER");
  job.mutable_error()->set_retryable(false);
  EXPECT_FALSE(is_tried_again(job));
  EXPECT_EQ(failure_of(job),
            "non_finite_loss: The loss is nan. (the same command does not try it again)");
}

TEST(StudyPlanTest, ListsAreReadAndRefusedByName) {
  EXPECT_THAT(parse_seeds("1-3,7,2").value(), ElementsAre(1, 2, 3, 7));
  for (const char* bad : {"", "0", "a", "3-1", "1-", "1-100"}) {
    EXPECT_FALSE(parse_seeds(bad).ok()) << bad;
  }
  EXPECT_THAT(parse_methods("dex,kvo-only,dex").value(), ElementsAre("dex", "kvo_only"));
  EXPECT_THAT(parse_methods("lora,full,adapter").value(), ElementsAre("lora", "full", "adapter"));
  EXPECT_THAT(parse_methods("dex,ia3").status().message(), HasSubstr("\"ia3\" is not one of"));
}

TEST(StudyPlanTest, VariantsOfDexAreNamedByTheFieldThatDiffers) {
  EXPECT_THAT(parse_methods("dex:plus,dex:dex-only,dex:kvo+dex,dex:plus").value(),
              ElementsAre("dex:plus", "dex:dex_only", "dex:kvo_dex"));
  EXPECT_THAT(parse_methods("dex:ia3").status().message(),
              HasSubstr("\"dex:ia3\" is no variant; there are dex:kvo_dex, dex:dex_only"));
  for (const char* bad : {"dex:", "lora:plus", ":plus", "kvo_only:dex_only", "dex:unspecified"}) {
    EXPECT_FALSE(parse_methods(bad).ok()) << bad;
  }
}

TEST(StudyPlanTest, AVariantIsDexButForOneField) {
  auto both = plan();
  both.preset = "paper";
  both.common.sets = {"dex.lambda.end=0.4", "lora.r=4", "dex.sign=minus"};
  auto expected = spec_of(both, {"dex", 2}).value();
  expected.mutable_dex()->set_sign(v1::DexMethod::SIGN_PLUS);
  const auto plus = spec_of(both, {"dex:plus", 2}).value();
  EXPECT_EQ(plus.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(plus.dex().preset(), "paper");
  EXPECT_EQ(plus.dex().lambda().end(), 0.4);
  const auto alone = spec_of(both, {"dex:dex_only", 2}).value();
  EXPECT_EQ(alone.dex().train(), v1::DexMethod::TRAIN_DEX_ONLY);
  EXPECT_EQ(alone.dex().sign(), v1::DexMethod::SIGN_MINUS);
}

TEST(StudyPlanTest, DexIsNeverComparedWithoutItsControl) {
  std::vector<std::string> methods = {"lora", "dex:dex_only"};
  EXPECT_TRUE(add_control(methods));
  EXPECT_THAT(methods, ElementsAre("lora", "dex:dex_only", "kvo_only"));
  EXPECT_FALSE(add_control(methods));
  std::vector<std::string> others = {"lora", "full"};
  EXPECT_FALSE(add_control(others));
  EXPECT_THAT(others, ElementsAre("lora", "full"));
}

TEST(StudyPlanTest, TheNoiseFloorIsOfTwoSigns) {
  EXPECT_EQ(noise_partner({"dex", "dex:plus", "dex:minus"}, "dex:plus"), "dex");
  EXPECT_EQ(noise_partner({"dex:plus", "dex:minus"}, "dex:plus"), "dex:minus");
  EXPECT_EQ(noise_partner({"dex:plus", "dex:minus"}, "dex:minus"), "") << "said once";
  EXPECT_EQ(noise_partner({"dex", "dex:dex_only"}, "dex:dex_only"), "");
  EXPECT_EQ(noise_partner({"dex:plus", "lora"}, "dex:plus"), "");
}

TEST(StudyPlanTest, AVariantThatIsNoneIsRefused) {
  v1::FineTuningJobSpec minus;
  minus.mutable_dex()->set_sign(v1::DexMethod::SIGN_MINUS);
  v1::FineTuningJobSpec plus = minus;
  plus.mutable_dex()->set_sign(v1::DexMethod::SIGN_PLUS);
  EXPECT_TRUE(check_distinct({{"dex", minus}, {"dex:plus", plus}}).ok());
  const auto status = check_distinct({{"dex", plus}, {"lora", minus}, {"dex:plus", plus}});
  EXPECT_THAT(status.message(), HasSubstr("dex:plus asks for what dex does already"));
  EXPECT_THAT(status.message(), HasSubstr("take the other sign"));
}

TEST(StudyPlanTest, MethodsThatWouldReadOtherRowsAreNotCompared) {
  v1::FineTuningJobSpec dex, lora;
  dex.mutable_hyperparameters()->set_group_by(v1::Hyperparameters::GROUP_BY_LANGUAGE);
  lora.mutable_hyperparameters()->set_group_by(v1::Hyperparameters::GROUP_BY_NONE);
  EXPECT_EQ(check_same_rows({{"dex", dex}, {"kvo_only", dex}, {"lora", lora}}).message(),
            "--preset: dex has hyperparameters.group_by language and lora has none, so they would "
            "not be trained on the same rows; give all the same with --set "
            "hyperparameters.group_by=language (or tag, none)");
  lora = dex;
  EXPECT_TRUE(check_same_rows({{"dex", dex}, {"lora", lora}}).ok());
  (*lora.mutable_hyperparameters()->mutable_group_weights())["cy"] = 2;
  EXPECT_THAT(check_same_rows({{"dex", dex}, {"lora", lora}}).message(),
              HasSubstr("and lora has language with other weights"));
}

RunResult run(const std::string& method, uint64_t seed, double loss) {
  RunResult result;
  result.run = {method, seed};
  result.base_loss = 2.5;
  result.loss = loss;
  result.trained_parameters = method == "dex" ? 17'000'000 : 16'000'000;
  result.tokens_per_second = 100.0 + static_cast<double>(seed);
  return result;
}

TEST(StudyReportTest, DifferencesArePairedBySeed) {
  // Seeds differ far more than methods do; paired, the difference is exact.
  const std::vector<RunResult> results = {run("dex", 1, 2.10), run("kvo_only", 1, 2.11),
                                          run("dex", 2, 2.30), run("kvo_only", 2, 2.31),
                                          run("dex", 3, 2.20), run("kvo_only", 3, 2.211)};
  const auto rows = summarise(plan(), results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0].against_control.mean, -0.031 / 3, 1e-9);
  EXPECT_TRUE(rows[0].against_control.excludes_zero());
  EXPECT_EQ(rows[1].against_control.n, 0u) << "the control is not compared with itself";
  EXPECT_NEAR(rows[0].against_base.mean, -0.3, 1e-9);
  EXPECT_EQ(rows[0].tokens_per_second, 102);

  const std::string report = markdown("code.train.jsonl", "dexctl study …", plan(), rows);
  EXPECT_THAT(report, HasSubstr("| `dex` | 2.2000 (1.9516–2.4484) |"));
  EXPECT_THAT(report, HasSubstr("`dex` against `kvo_only`: -0.0103 (-0.0118 to -0.0089) nats a "
                                "token: better"));
  EXPECT_THAT(report, HasSubstr("    dexctl study …"));
}

TEST(StudyReportTest, EqualDifferencesAreNoVerdict) {
  const std::vector<RunResult> results = {run("dex", 1, 2.10), run("kvo_only", 1, 2.11),
                                          run("dex", 2, 2.30), run("kvo_only", 2, 2.31),
                                          run("dex", 3, 2.20), run("kvo_only", 3, 2.21)};
  const std::string report = markdown("d", "c", plan(), summarise(plan(), results));
  EXPECT_THAT(report,
              HasSubstr("`dex` against `kvo_only`: -0.0100 (the same in all 3) nats a token: "
                        "these seeds show no spread"));
}

TEST(StudyReportTest, SaysEachMethodsLearningRatesOnce) {
  std::vector<RunResult> results = {run("dex", 1, 2.1), run("dex", 2, 2.2),
                                    run("kvo_only", 1, 2.1)};
  results[0].rates = results[1].rates = "learning_rate 0.0001, branch_learning_rate 0.0001";
  results[2].rates = "learning_rate 0.0001";
  const auto rows = summarise(plan(), results);
  EXPECT_THAT(rows[0].notes, ElementsAre("learning_rate 0.0001, branch_learning_rate 0.0001"));
  EXPECT_THAT(markdown("d", "c", plan(), rows), HasSubstr("- `kvo_only`: learning_rate 0.0001\n"));
}

TEST(StudyPlanTest, WhatIsMergedWhenItIsServedIsKnownFromTheSpec) {
  using Dex = v1::DexMethod;
  const auto dex = [](const std::function<void(Dex&)>& change) {
    v1::FineTuningJobSpec spec;
    change(*spec.mutable_dex());
    const Decoding how = decoding_of(spec);
    return std::pair(how.merged, how.scaled);
  };
  const std::pair both(true, true), apart(false, false), merged(true, false);
  EXPECT_EQ(dex([](Dex& to) { to.set_form(Dex::FORM_PAPER); }), both);
  EXPECT_EQ(dex([](Dex& to) {
              to.set_form(Dex::FORM_HEAD_MEAN);
              to.set_projection(Dex::PROJECTION_BOTTLENECK);
              to.mutable_bottleneck()->set_activation(Dex::Bottleneck::ACTIVATION_NONE);
            }),
            both);
  EXPECT_EQ(dex([](Dex& to) {
              to.set_projection(Dex::PROJECTION_BOTTLENECK);
              to.mutable_bottleneck()->set_activation(Dex::Bottleneck::ACTIVATION_SILU);
            }),
            apart);
  EXPECT_EQ(dex([](Dex& to) { to.set_form(Dex::FORM_PREFIX_MEAN); }), apart);
  EXPECT_EQ(dex([](Dex& to) { to.set_form(Dex::FORM_UNIFORM_MAP); }), apart);
  EXPECT_EQ(dex([](Dex& to) { to.set_train(Dex::TRAIN_LORA_DEX); }), apart);
  EXPECT_EQ(dex([](Dex& to) { to.set_train(Dex::TRAIN_FULL_DEX); }), merged);
  v1::FineTuningJobSpec lora, adapter, kvo, full, diff;
  full.mutable_full();
  diff.mutable_diff();
  EXPECT_TRUE(decoding_of(full).whole && decoding_of(full).merged) << "it has the base's shape";
  EXPECT_TRUE(decoding_of(diff).whole);
  EXPECT_FALSE(decoding_of(diff).merged) << "it has a second attention map";
  lora.mutable_lora();
  adapter.mutable_adapter();
  kvo.mutable_kvo_only();
  EXPECT_FALSE(decoding_of(lora).merged || decoding_of(lora).scaled);
  EXPECT_FALSE(decoding_of(adapter).merged || decoding_of(adapter).scaled);
  EXPECT_TRUE(decoding_of(kvo).merged);
  EXPECT_FALSE(decoding_of(kvo).scaled) << "there is no branch to take out";
  EXPECT_FALSE(decoding_of(kvo).whole);
}

// Nothing serves what `full` makes before it is listed as a base model, and there is nothing to
// measure: its matrices are the base's in shape.
TEST(StudyReportTest, AWholeModelDecodesAsTheBaseDoes) {
  auto two = plan();
  two.methods = {"kvo_only", "full"};
  std::vector<RunResult> results = {run("kvo_only", 1, 2.2), run("full", 1, 2.1)};
  results[1].decoding = {.merged = true, .whole = true};
  const auto rows = summarise(two, results);
  const std::string report = markdown("d", "c", two, rows);
  EXPECT_THAT(report, HasSubstr("| base's shape | – |\n"));
  EXPECT_THAT(report, Not(HasSubstr("decoding not measured")));
  const auto json = to_json("d", "c", two, rows, results);
  EXPECT_FALSE(json["methods"][0].contains("base_shape"));
  EXPECT_EQ(json["methods"][1]["base_shape"], true);
}

TEST(StudyReportTest, DecodingIsToldMergedAndUnmerged) {
  auto three = plan();
  three.methods = {"dex", "kvo_only", "lora"};
  std::vector<RunResult> results = {run("dex", 1, 2.1), run("kvo_only", 1, 2.2),
                                    run("lora", 1, 2.3)};
  results[0].merged = {1.0, 1.02, 0.99};
  results[0].unmerged = {1.2, 1.1, 1.3};
  results[1].merged = {1.01};
  results[2].unmerged = {1.4, 1.5};
  const auto rows = summarise(three, results);
  const std::string report = markdown("d", "c", three, rows);
  EXPECT_THAT(report, HasSubstr("| artefact | decoding time merged | decoding time unmerged |\n"));
  EXPECT_THAT(report, HasSubstr("| × 1.00 (0.99–1.02) | × 1.20 (1.10–1.30) |\n"));
  EXPECT_THAT(report, HasSubstr("| × 1.01 (1.01–1.01) | – |\n"));
  EXPECT_THAT(report, HasSubstr("| – | × 1.45 (1.40–1.50) |\n"));
  EXPECT_THAT(report, HasSubstr("has the base's shape and so its cost"));
  EXPECT_THAT(report, HasSubstr("dex_lambda_scale 0.5"));
  const auto json = to_json("d", "c", three, rows, results);
  EXPECT_NEAR(json["methods"][0]["decoding_time_unmerged"]["median"].get<double>(), 1.2, 1e-9);
  EXPECT_NEAR(json["methods"][0]["decoding_time_merged"]["max"].get<double>(), 1.02, 1e-9);
  EXPECT_FALSE(json["methods"][1].contains("decoding_time_unmerged"));
  EXPECT_FALSE(json["methods"][2].contains("decoding_time_merged"));
  EXPECT_EQ(json["runs"][2]["decoding_time_unmerged"].size(), 2U);
}

TEST(StudyReportTest, NothingIsCalledADifferenceThatIsNone) {
  const std::vector<RunResult> noisy = {run("dex", 1, 2.10), run("kvo_only", 1, 2.12),
                                        run("dex", 2, 2.32), run("kvo_only", 2, 2.31)};
  const auto rows = summarise(plan(), noisy);
  EXPECT_THAT(markdown("d", "c", plan(), rows), HasSubstr("no difference that these seeds can"));
  const auto single = summarise(plan(), {run("dex", 1, 2.0), run("kvo_only", 1, 2.1)});
  EXPECT_THAT(markdown("d", "c", plan(), single), HasSubstr("one seed says nothing"));
}

v1::BranchEffect branch(v1::BranchEffect::Verdict verdict, double value, double ce_delta) {
  v1::BranchEffect effect;
  effect.set_verdict(verdict);
  effect.set_value(value);
  effect.set_ce_delta(ce_delta);
  return effect;
}

// Two seeds of dex and kvo_only with all that a job tells.
std::vector<RunResult> told_runs() {
  std::vector<RunResult> results = {run("dex", 1, 2.1), run("kvo_only", 1, 2.2), run("dex", 2, 2.3),
                                    run("kvo_only", 2, 2.3)};
  for (auto& result : results) {
    result.trained_tokens = 1200;
    result.gradient_range = 0.25;
    // Averages: 4, 3.9, 3.802 of the control; 4, 3.88, 3.7624 of dex.
    result.train_losses = {4, -1, -1};
    if (result.run.method == "kvo_only") {
      result.branch.set_verdict(v1::BranchEffect::VERDICT_NOT_APPLICABLE);
    } else {
      result.branch = branch(v1::BranchEffect::VERDICT_INERT, 0.00004, -0.0003);
      result.train_losses = {4, -2, -2};
    }
  }
  return results;
}

TEST(StudyReportTest, ABranchThatDoesLittleIsToldInWords) {
  auto results = told_runs();
  const std::string inert = markdown("d", "c", plan(), summarise(plan(), results));
  EXPECT_THAT(inert, HasSubstr("| `dex` | INERT, r 4e-05 | 1200 |"));
  EXPECT_THAT(inert, HasSubstr("- `dex`: the branch is INERT (r 4e-05, seeds 1, 2); without it "
                               "the held-out loss would be 0.0003 lower.\n"));
  EXPECT_THAT(inert, HasSubstr("| `kvo_only` |  | 1200 |"));
  results[0].branch = branch(v1::BranchEffect::VERDICT_WEAK, 0.01, 0.002);
  results[2].branch = branch(v1::BranchEffect::VERDICT_ACTIVE, 0.03, 0.1);
  const auto rows = summarise(plan(), results);
  const std::string mixed = markdown("d", "c", plan(), rows);
  EXPECT_THAT(mixed, HasSubstr("| `dex` | WEAK ×1, r 0.01; ACTIVE ×1, r 0.03 |"));
  EXPECT_THAT(mixed, HasSubstr("the branch is WEAK (r 0.01, seed 1); without it the held-out "
                               "loss would be 0.002 higher.\n"));
  EXPECT_THAT(mixed, Not(HasSubstr("the branch is ACTIVE")));
  const auto json = to_json("d", "c", plan(), rows, results);
  EXPECT_EQ(json["runs"][0]["branch_effect"]["verdict"], "WEAK");
  EXPECT_EQ(json["runs"][0]["branch_effect"]["value"], 0.01);
  EXPECT_EQ(json["runs"][0]["branch_effect"]["ce_delta"], 0.002);
  EXPECT_FALSE(json["runs"][1].contains("branch_effect"));
}

TEST(StudyReportTest, TheBaseAndTheControlStandBesideDex) {
  const auto results = told_runs();
  const auto rows = summarise(plan(), results);
  const std::string report = markdown("d", "c", plan(), rows);
  EXPECT_THAT(report, HasSubstr("\n| base | 2.5000 |\n"));
  EXPECT_THAT(report, HasSubstr("how much of a gain over the base is ordinary attention"));
  EXPECT_THAT(report, HasSubstr("only where its interval over the seeds, paired, leaves out 0. "
                                "Runs of 1200 tokens neither confirm nor refute"));
  EXPECT_THAT(report, HasSubstr("\n![Held-out loss by method](loss.svg)\n"));
  const auto json = to_json("d", "c", plan(), rows, results);
  EXPECT_EQ(json["base"]["loss_min"], 2.5);
  EXPECT_EQ(json["methods"].size(), 2u) << "the base is no method";

  auto large = results;
  for (auto& result : large) result.trained_tokens = 1'000'000'000;
  EXPECT_THAT(markdown("d", "c", plan(), summarise(plan(), large)), Not(HasSubstr("refute")));
}

TEST(StudyReportTest, UnequalBudgetsAreNamed) {
  auto results = told_runs();
  EXPECT_THAT(markdown("d", "c", plan(), summarise(plan(), results)), Not(HasSubstr("budgets")));
  results[3].trained_tokens = 1100;
  const std::string report = markdown("d", "c", plan(), summarise(plan(), results));
  EXPECT_THAT(report, HasSubstr("- seed 2: the budgets are not equal, trained tokens are `dex` "
                                "1200, `kvo_only` 1100.\n"));
  EXPECT_THAT(report, Not(HasSubstr("- seed 1:")));
  EXPECT_THAT(report, HasSubstr("| `kvo_only` |  | 1100–1200 |"));
}

TEST(StudyReportTest, LearningIsComparedWithTheControlOfTheSameSeed) {
  auto results = told_runs();
  results[2].train_losses = {4, 4, 4};  // never
  results[0].gradient_range = 0.75;
  auto rows = summarise(plan(), results);
  const std::string report = markdown("d", "c", plan(), rows);
  EXPECT_THAT(report, HasSubstr("| `dex` | INERT, r 4e-05 | 1200 | 0.50 | 2, – |\n"));
  EXPECT_THAT(report, HasSubstr("| `kvo_only` |  | 1200 | 0.25 | |\n"));
  auto json = to_json("d", "c", plan(), rows, results);
  EXPECT_EQ(json["runs"][0]["steps_to_kvo_only"], 2);
  EXPECT_EQ(json["runs"][0]["gradient_range"], 0.75);
  EXPECT_NEAR(json["runs"][0]["train_loss_average"].get<double>(), 3.7624, 1e-12);
  EXPECT_TRUE(json["runs"][2].at("steps_to_kvo_only").is_null());
  EXPECT_FALSE(json["runs"][1].contains("steps_to_kvo_only"));

  results[3].train_losses.clear();
  results[0].gradient_range = results[2].gradient_range = std::nullopt;
  rows = summarise(plan(), results);
  EXPECT_THAT(markdown("d", "c", plan(), rows), HasSubstr("| 1200 | ? | 2, ? |\n"));
  json = to_json("d", "c", plan(), rows, results);
  EXPECT_FALSE(json["runs"][2].contains("steps_to_kvo_only"));
  EXPECT_FALSE(json["runs"][0].contains("gradient_range"));
}

TEST(StudyReportTest, TwoSignsAreTheNoiseFloor) {
  auto signs = plan();
  signs.methods = {"dex", "dex:plus", "kvo_only"};
  const std::vector<RunResult> results = {run("dex", 1, 2.10), run("dex:plus", 1, 2.11),
                                          run("dex", 2, 2.30), run("dex:plus", 2, 2.31)};
  const auto rows = summarise(signs, results);
  EXPECT_THAT(
      markdown("d", "c", signs, rows),
      HasSubstr("- Noise floor, `dex:plus` against `dex`: 0.0100 (the same in all 2) nats"));
  const auto json = to_json("d", "c", signs, rows, results);
  EXPECT_EQ(json["methods"][1]["noise_floor"]["against"], "dex");
  EXPECT_NEAR(json["methods"][1]["noise_floor"]["difference"]["value"].get<double>(), 0.01, 1e-12);
  EXPECT_FALSE(json["methods"][0].contains("noise_floor"));
}

TEST(StudyReportTest, FailedRunsAreToldAndNotCounted) {
  RunResult failed = run("dex", 2, 0);
  failed.failure = "out_of_memory: 3 GiB are not there";
  const auto rows = summarise(
      plan(), {run("dex", 1, 2.1), failed, run("kvo_only", 1, 2.2), run("kvo_only", 2, 2.2)});
  EXPECT_EQ(rows[0].loss.n, 1u);
  EXPECT_EQ(rows[0].against_control.n, 1u);
  EXPECT_THAT(rows[0].notes, ElementsAre("seed 2: out_of_memory: 3 GiB are not there"));
  EXPECT_THAT(markdown("d", "c", plan(), rows), HasSubstr("out_of_memory"));
}

TEST(StudyReportTest, JsonAndPictureHaveTheSameNumbers) {
  const std::vector<RunResult> results = {run("dex", 1, 2.1), run("dex", 2, 2.3)};
  const auto rows = summarise(plan(), results);
  const auto json = to_json("d", "c", plan(), rows, results);
  EXPECT_NEAR(json["methods"][0]["loss"]["value"].get<double>(), 2.2, 1e-9);
  EXPECT_EQ(json["methods"][1]["loss"]["n"], 0);
  EXPECT_EQ(json["runs"].size(), 2u);
  const std::string svg = loss_svg(rows, results);
  EXPECT_THAT(svg, HasSubstr("dex 2.2000"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(loss_svg({}, {}), "");
}

}  // namespace
}  // namespace dex::cli
