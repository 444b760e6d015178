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
  EXPECT_EQ(text(t_interval({-0.2, -0.2}), 1), "-0.2 (-0.2 to -0.2)");
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
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
  for (const auto& spec : {dex, control}) {
    EXPECT_EQ(spec.seed(), 2);
    EXPECT_EQ(spec.hyperparameters().max_steps(), 8u);
  }
  auto open = plan();
  open.common.max_steps.clear();
  EXPECT_THAT(spec_of(open, {"dex", 1}).status().message(), HasSubstr("--max-steps"));
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

TEST(StudyPlanTest, ListsAreReadAndRefusedByName) {
  EXPECT_THAT(parse_seeds("1-3,7,2").value(), ElementsAre(1, 2, 3, 7));
  for (const char* bad : {"", "0", "a", "3-1", "1-", "1-100"}) {
    EXPECT_FALSE(parse_seeds(bad).ok()) << bad;
  }
  EXPECT_THAT(parse_methods("dex,kvo-only,dex").value(), ElementsAre("dex", "kvo_only"));
  EXPECT_THAT(parse_methods("lora,full,adapter").value(), ElementsAre("lora", "full", "adapter"));
  EXPECT_THAT(parse_methods("dex,ia3").status().message(), HasSubstr("\"ia3\" is not one of"));
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
                                          run("dex", 3, 2.20), run("kvo_only", 3, 2.21)};
  const auto rows = summarise(plan(), results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0].against_control.mean, -0.01, 1e-9);
  EXPECT_TRUE(rows[0].against_control.excludes_zero());
  EXPECT_EQ(rows[1].against_control.n, 0u) << "the control is not compared with itself";
  EXPECT_NEAR(rows[0].against_base.mean, -0.3, 1e-9);
  EXPECT_EQ(rows[0].tokens_per_second, 102);

  const std::string report = markdown("code.train.jsonl", "dexctl study …", plan(), rows);
  EXPECT_THAT(report, HasSubstr("| `dex` | 2.2000 (1.9516–2.4484) |"));
  EXPECT_THAT(report, HasSubstr("`dex` against `kvo_only`: -0.0100 (-0.0100 to -0.0100) nats a "
                                "token: better"));
  EXPECT_THAT(report, HasSubstr("    dexctl study …"));
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
  v1::FineTuningJobSpec lora, adapter, kvo;
  lora.mutable_lora();
  adapter.mutable_adapter();
  kvo.mutable_kvo_only();
  EXPECT_FALSE(decoding_of(lora).merged || decoding_of(lora).scaled);
  EXPECT_FALSE(decoding_of(adapter).merged || decoding_of(adapter).scaled);
  EXPECT_TRUE(decoding_of(kvo).merged);
  EXPECT_FALSE(decoding_of(kvo).scaled) << "there is no branch to take out";
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
