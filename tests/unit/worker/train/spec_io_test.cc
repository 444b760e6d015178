#include "worker/train/spec_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "worker/train/failure.h"

namespace dex::train {
namespace {

using testing::HasSubstr;

// TrainerStart with `spec` as the job's spec.
std::string start(const std::string& spec) {
  return R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "attemptDir": "/a", "spec": )" + spec +
         "}";
}

void expect_refused(const std::string& json, const std::string& words) {
  try {
    parse_spec_json(json, "spec.json");
    ADD_FAILURE() << json << " was taken";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit(), Exit::kBadSpec);
    EXPECT_EQ(failure.code(), "invalid_hyperparameter");
    EXPECT_THAT(failure.what(), HasSubstr(words)) << json;
  }
}

TEST(SpecIoTest, AnEmptyMethodIsThePaperPreset) {
  const JobSpec spec = parse_spec_json(start("{}"), "spec.json");
  EXPECT_EQ(spec.job_id, "local");
  EXPECT_EQ(spec.dex.form, model::Form::kPaper);
  EXPECT_EQ(spec.dex.sign, model::Sign::kMinus);
  EXPECT_EQ(spec.dex.lambda.schedule, model::Schedule::kPaperEq4);
  EXPECT_EQ(spec.heads.criterion, evaluate::Criterion::kEntropy);
  EXPECT_DOUBLE_EQ(spec.hyperparameters.learning_rate, 1e-4);
  EXPECT_DOUBLE_EQ(spec.anneal.fraction, 0.5);
}

TEST(SpecIoTest, TheFirstLayerIsOfMethodsThatAdaptLayerByLayer) {
  const auto with = [](const std::string& method) {
    return start(R"({"hyperparameters": {"firstLayer": 15})" + method + "}");
  };
  EXPECT_EQ(parse_spec_json(start("{}"), "spec.json").dex.first_layer, 0);
  EXPECT_EQ(parse_spec_json(with(""), "spec.json").dex.first_layer, 15);
  EXPECT_EQ(parse_spec_json(with(R"(, "lora": {})"), "spec.json").dex.first_layer, 15);
  for (const char* method :
       {R"(, "full": {})", R"(, "diff": {})", R"(, "dex": {"train": "TRAIN_FULL_DEX"})"}) {
    expect_refused(with(method), "hyperparameters.first_layer: 15 has no meaning with full");
  }
  expect_refused(with(R"(, "dex": {"headSelection": {"criterion": "CRITERION_EXPLICIT",
                                   "heads": [{"layer": 16, "heads": [0]}, {"layer": 14, "heads": [2]}]}})"),
                 "has heads in layer 14, below hyperparameters.first_layer 15");
}

TEST(SpecIoTest, ReadsWhatAPresetResolvesTo) {
  const JobSpec spec = parse_spec_json(start(R"({
        "seed": "9",
        "dex": {"preset": "multilingual@1", "form": "FORM_HEAD_MEAN", "projection": "PROJECTION_BOTTLENECK",
                "bottleneck": {"widthRatio": 1.5, "scope": "SCOPE_PER_HEAD"}, "sign": "SIGN_PLUS",
                "headSelection": {"criterion": "CRITERION_THRESHOLD", "tau": 1.0, "eta": 0.03,
                                  "reselectEverySteps": 500},
                "lambda": {"schedule": "SCHEDULE_COSINE", "start": 0.05, "end": 0.3, "annealSteps": "3000"}},
        "hyperparameters": {"learningRate": 5e-5, "branchLearningRate": 1e-4, "lrSchedulerType": "LR_SCHEDULER_COSINE",
                            "truncation": "TRUNCATION_CHUNK"},
        "checkpoints": {"everySeconds": 60}, "watchdog": {"maxRollbacks": 0}})"),
                                       "spec.json");
  EXPECT_EQ(spec.seed, 9u);
  EXPECT_EQ(spec.dex.form, model::Form::kHeadMean);
  EXPECT_EQ(spec.dex.projection, model::Projection::kBottleneck);
  EXPECT_EQ(spec.dex.bottleneck_scope, model::BottleneckScope::kPerHead);
  EXPECT_EQ(spec.dex.sign, model::Sign::kPlus);
  EXPECT_EQ(spec.heads.criterion, evaluate::Criterion::kThreshold);
  EXPECT_EQ(spec.heads.entropy_unit, evaluate::EntropyUnit::kZscore);
  EXPECT_EQ(spec.reselect_every, 500);
  EXPECT_EQ(spec.anneal.steps, 3000);
  EXPECT_DOUBLE_EQ(spec.dex.lambda.end, 0.3);
  EXPECT_DOUBLE_EQ(spec.hyperparameters.learning_rate, 5e-5);
  EXPECT_EQ(spec.hyperparameters.truncation, text::Truncation::kChunk);
  EXPECT_DOUBLE_EQ(spec.checkpoints.every_seconds, 60);
  EXPECT_EQ(spec.watchdog.max_rollbacks, 0);
}

TEST(SpecIoTest, RowsAreDrawnByGroupsWithWeights) {
  const auto hyper = [](const std::string& fields) {
    return start("{\"hyperparameters\": {" + fields + "}}");
  };
  EXPECT_EQ(parse_spec_json(start("{}"), "spec.json").hyperparameters.group_by, GroupBy::kNone);
  const auto read =
      parse_spec_json(
          hyper(
              R"json("groupBy": "GROUP_BY_TAG", "groupWeights": {"law": 0.5, "(none)": 1000})json"),
          "spec.json")
          .hyperparameters;
  EXPECT_EQ(read.group_by, GroupBy::kTag);
  EXPECT_EQ(read.group_weights, (std::map<std::string, double>{{"(none)", 1000}, {"law", 0.5}}));
  EXPECT_EQ(parse_spec_json(hyper(R"("groupBy": "GROUP_BY_LANGUAGE")"), "spec.json")
                .hyperparameters.group_by,
            GroupBy::kLanguage);
  for (const char* by : {R"("groupBy": "GROUP_BY_NONE", )", ""}) {
    expect_refused(hyper(std::string(by) + R"("groupWeights": {"law": 2})"),
                   "hyperparameters.group_weights: needs hyperparameters.group_by TAG or LANGUAGE");
  }
  for (const char* weight : {"0", "-1", "1001", "\"NaN\"", "\"Infinity\""}) {
    expect_refused(
        hyper(R"("groupBy": "GROUP_BY_TAG", "groupWeights": {"law": )" + std::string(weight) + "}"),
        "hyperparameters.group_weights: must be between 0.001 and 1000 for each group");
  }
}

TEST(SpecIoTest, OnlyAMethodThatSelectsHeadsMayEndThere) {
  const auto with = [](const std::string& spec, const std::string& more) {
    return R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "headsOnly": true, )" + more +
           R"("spec": )" + spec + "}";
  };
  EXPECT_TRUE(parse_spec_json(with("{}", ""), "spec.json").heads_only);
  EXPECT_FALSE(parse_spec_json(start("{}"), "spec.json").heads_only);
  expect_refused(with(R"({"kvoOnly": {}})", ""), "heads_only: needs method dex");
}

TEST(SpecIoTest, AProbeBeginsAtTheStartAndTrainsMoreThanHeads) {
  const auto with = [](const std::string& more) {
    return R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "probeOnly": true, )" + more +
           R"("spec": {}})";
  };
  EXPECT_TRUE(parse_spec_json(with(""), "spec.json").probe_only);
  EXPECT_FALSE(parse_spec_json(start("{}"), "spec.json").probe_only);
  expect_refused(with(R"("headsOnly": true, )"), "probe_only: can't be together with");
  expect_refused(with(R"("checkpointDir": "/c", )"), "probe_only: can't be together with");
}

TEST(SpecIoTest, AHeldJobIsAWholeOne) {
  const auto with = [](const std::string& more) {
    return R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "hold": true, )" + more +
           R"("spec": {}})";
  };
  EXPECT_TRUE(parse_spec_json(with(""), "spec.json").hold);
  EXPECT_FALSE(parse_spec_json(start(R"({"autoStart": false})"), "spec.json").hold)
      << "whoever starts the trainer says what it is to do";
  expect_refused(with(R"("headsOnly": true, )"), "hold: can't be together with");
  expect_refused(with(R"("probeOnly": true, )"), "hold: can't be together with");
}

TEST(SpecIoTest, ReadsEveryOptionOfTheMethod) {
  const auto dex = [](const std::string& body) {
    return parse_spec_json(start("{\"dex\": {" + body + "}}"), "spec.json").dex;
  };
  const auto prefix = dex(R"("form": "FORM_PREFIX_MEAN", "projection": "PROJECTION_BOTTLENECK",
      "bottleneck": {"widthRatio": 0.5, "scope": "SCOPE_DENSE", "activation": "ACTIVATION_GELU"},
      "start": "START_LITERAL", "allowLargeProjection": true,
      "headSelection": {"softFloor": 0.25},
      "lambda": {"schedule": "SCHEDULE_CONSTANT", "value": 0.2})");
  EXPECT_EQ(prefix.form, model::Form::kPrefixMean);
  EXPECT_EQ(prefix.sign, model::Sign::kPlus);  // the form's own
  EXPECT_EQ(prefix.bottleneck_scope, model::BottleneckScope::kDense);
  EXPECT_EQ(prefix.bottleneck_activation, model::Activation::kGelu);
  EXPECT_EQ(prefix.start, model::Start::kLiteral);
  EXPECT_TRUE(prefix.allow_large_projection);
  EXPECT_EQ(prefix.soft_floor, 0.25);
  EXPECT_EQ(prefix.lambda.schedule, model::Schedule::kConstant);
  EXPECT_EQ(prefix.lambda.value, 0.2);
  const auto uniform = dex(R"("form": "FORM_UNIFORM_MAP",
      "lambda": {"schedule": "SCHEDULE_LEARNED", "learnInit": 0.1})");
  EXPECT_EQ(uniform.form, model::Form::kUniformMap);
  EXPECT_EQ(uniform.sign, model::Sign::kMinus);
  EXPECT_EQ(uniform.lambda.schedule, model::Schedule::kLearned);
  EXPECT_EQ(uniform.lambda.learn_init, 0.1);
  for (const std::string body : {R"("form": "FORM_DENSE")",
                                 R"("form": "FORM_HEAD_MEAN", "projection": "PROJECTION_DENSE")"}) {
    const auto dense = dex(body);
    EXPECT_EQ(dense.form, model::Form::kPaper) << body;
    EXPECT_EQ(dense.projection, model::Projection::kDense) << body;
    EXPECT_EQ(dense.sign, model::Sign::kPlus) << body;
  }
  EXPECT_EQ(dex(R"("projection": "PROJECTION_DENSE")").sign, model::Sign::kMinus);
}

TEST(SpecIoTest, KvoOnlyHasNoBranch) {
  const JobSpec spec = parse_spec_json(start(R"({"kvoOnly": {}})"), "spec.json");
  EXPECT_EQ(spec.dex.form, model::Form::kNone);
  EXPECT_EQ(spec.dex.train, model::Train::kKvoOnly);
}

TEST(SpecIoTest, ReadsEveryMethod) {
  const auto read = [](const std::string& method) {
    return parse_spec_json(start("{" + method + "}"), "spec.json");
  };
  const JobSpec lora = read(
      R"("lora": {"r": 4, "alpha": 8, "dropout": 0.1, "targetModules": ["q_proj", "up_proj"], "useRslora": true})");
  EXPECT_EQ(lora.dex.train, model::Train::kLora);
  EXPECT_EQ(lora.dex.form, model::Form::kNone);
  EXPECT_EQ(lora.dex.lora.r, 4);
  EXPECT_DOUBLE_EQ(lora.dex.lora.alpha, 8);
  EXPECT_DOUBLE_EQ(lora.dex.lora.dropout, 0.1);
  EXPECT_TRUE(lora.dex.lora.rslora);
  EXPECT_EQ(lora.dex.lora.targets,
            (std::vector<model::Linear>{model::Linear::kQ, model::Linear::kUp}));
  // Each method has its own rate (method.md §7).
  EXPECT_DOUBLE_EQ(lora.hyperparameters.learning_rate, 2e-4);
  EXPECT_EQ(read(R"("lora": {})").dex.lora.targets.size(), 4u);

  const JobSpec adapter = read(
      R"("adapter": {"size": 8, "placement": "PLACEMENT_MLP", "activation": "ACTIVATION_GELU"})");
  EXPECT_EQ(adapter.dex.train, model::Train::kAdapter);
  EXPECT_EQ(adapter.dex.adapter.size, 8);
  EXPECT_EQ(adapter.dex.adapter.placement, model::Placement::kMlp);
  EXPECT_EQ(adapter.dex.adapter.activation, model::AdapterActivation::kGelu);
  EXPECT_DOUBLE_EQ(adapter.hyperparameters.learning_rate, 1e-4);

  const JobSpec full = read(R"("full": {})");
  EXPECT_EQ(full.dex.train, model::Train::kFull);
  EXPECT_DOUBLE_EQ(full.hyperparameters.learning_rate, 2e-5);

  const JobSpec diff = read(
      R"("diff": {"version": "VERSION_V1", "init": "INIT_MIRROR", "mix_in_ratio": 0.5, "train": "TRAIN_ALL"})");
  EXPECT_EQ(diff.dex.train, model::Train::kDiffAll);
  EXPECT_EQ(diff.dex.second_map.version, model::SecondMapOptions::Version::kV1);
  EXPECT_EQ(diff.dex.second_map.init, model::SecondMapOptions::Init::kMirror);
  EXPECT_DOUBLE_EQ(diff.mix_in_ratio, 0.5);
  EXPECT_DOUBLE_EQ(diff.hyperparameters.learning_rate, 2e-5);
  const JobSpec usual = read(R"("diff": {})");
  EXPECT_EQ(usual.dex.train, model::Train::kDiffAttention);
  EXPECT_EQ(usual.dex.form, model::Form::kNone);
  EXPECT_EQ(usual.dex.second_map.version, model::SecondMapOptions::Version::kV2);
  EXPECT_EQ(usual.dex.second_map.init, model::SecondMapOptions::Init::kZero);
  EXPECT_DOUBLE_EQ(usual.mix_in_ratio, 0.3);
  EXPECT_DOUBLE_EQ(usual.hyperparameters.learning_rate, 1e-4);

  const JobSpec lora_dex = read(R"("dex": {"train": "TRAIN_LORA_DEX", "lora": {"r": 2}})");
  EXPECT_EQ(lora_dex.dex.train, model::Train::kLoraDex);
  EXPECT_EQ(lora_dex.dex.form, model::Form::kPaper);
  EXPECT_EQ(lora_dex.dex.lora.r, 2);
  EXPECT_EQ(lora_dex.dex.lora.targets.size(), 3u);  // k, v, o
  EXPECT_EQ(read(R"("dex": {"train": "TRAIN_FULL_DEX"})").dex.train, model::Train::kFullDex);
}

TEST(SpecIoTest, RefusesBadOptionsOfAMethod) {
  expect_refused(start(R"({"diff": {"mix_in_ratio": 0}})"),
                 "diff.mix_in_ratio: must be a number above 0, got 0");
  expect_refused(start(R"({"lora": {"r": 0}})"), "lora.r: must be between 1 and 256, got 0");
  expect_refused(start(R"({"lora": {"alpha": "NaN"}})"), "lora.alpha: must be a finite number");
  expect_refused(start(R"({"lora": {"dropout": 1}})"),
                 "lora.dropout: must be between 0 and 0.99, got 1");
  expect_refused(start(R"({"lora": {"targetModules": ["lm_head"]}})"), "got \"lm_head\"");
  expect_refused(start(R"({"lora": {"targetModules": ["q_proj", "q_proj"]}})"), "q_proj twice");
  expect_refused(start(R"({"adapter": {"size": 0}})"),
                 "adapter.size: must be between 1 and 4096, got 0");
  expect_refused(start(R"({"dex": {"lora": {"r": 4}}})"), "only with TRAIN_LORA_DEX");
  expect_refused(start(R"({"dex": {"train": "TRAIN_FULL_DEX", "form": "FORM_PREFIX_MEAN"}})"),
                 "dex.form: PREFIX_MEAN keeps state between tokens and can't be folded");
}

TEST(SpecIoTest, RefusesBadValuesByFieldAndValue) {
  const auto hyper = [](const std::string& body) {
    return start("{\"hyperparameters\": {" + body + "}}");
  };
  const auto dex = [](const std::string& body) { return start("{\"dex\": {" + body + "}}"); };
  expect_refused(hyper(R"("learningRate": 0)"),
                 "hyperparameters.learning_rate: must be a number above 0, got 0");
  expect_refused(hyper(R"("learningRate": -1e-4)"), "hyperparameters.learning_rate");
  expect_refused(hyper(R"("learningRate": "NaN")"), "got nan");
  expect_refused(hyper(R"("branchLearningRate": "Infinity")"),
                 "hyperparameters.branch_learning_rate");
  expect_refused(hyper(R"("learningRate": 1e-4, "learningRateMultiplier": 2)"),
                 "not together with learning_rate");
  expect_refused(hyper(R"("warmupRatio": 0.6)"),
                 "hyperparameters.warmup_ratio: must be between 0 and 0.5, got 0.6");
  expect_refused(hyper(R"("maxSeqLength": 8)"), "hyperparameters.max_seq_length");
  expect_refused(hyper(R"("batchSize": 0)"), "hyperparameters.batch_size");
  expect_refused(hyper(R"("nEpochs": 101)"), "hyperparameters.n_epochs");
  expect_refused(hyper(R"("learningRat": 1e-4)"), "learningRat");
  expect_refused(hyper(R"("batchSize": "many")"), "not a TrainerStart message");
  expect_refused(dex(R"("lambda": {"annealSteps": "-5"})"),
                 "dex.lambda.anneal_steps: must be ≥ 0, got -5");
  expect_refused(dex(R"("lambda": {"schedule": "SCHEDULE_COSINE", "start": 0.1})"),
                 "start and end are needed");
  expect_refused(dex(R"("headSelection": {"criterion": "CRITERION_THRESHOLD", "tau": 1})"),
                 "head_selection.eta");
  expect_refused(dex(R"("bottleneck": {"widthRatio": 1.5})"), "only with PROJECTION_BOTTLENECK");
  expect_refused(dex(R"("sign": 7)"), "dex.sign: must be one of SIGN_MINUS, SIGN_PLUS, got 7");
  expect_refused(dex(R"("train": "TRAIN_UNSPECIFIED")"), "dex.train: must be one of");
  expect_refused(hyper(R"("maxGradNorm": 0)"), "hyperparameters.max_grad_norm");
  expect_refused(dex(R"("form": "FORM_DENSE", "projection": "PROJECTION_SHARED")"),
                 "must be PROJECTION_DENSE");
  expect_refused(dex(R"("form": "FORM_DENSE", "sign": "SIGN_MINUS")"), "must be SIGN_PLUS");
  expect_refused(dex(R"("lambda": {"schedule": "SCHEDULE_CONSTANT"})"), "dex.lambda.value");
  expect_refused(dex(R"("headSelection": {"softFloor": 0.7})"), "head_selection.soft_floor");
  expect_refused(dex(R"("form": 9)"), "dex.form");
  expect_refused(dex(R"("preset": "code")"), "presets are resolved by the scheduler");
  expect_refused(start(R"({"validationSplit": 0.7})"), "validation_split");
  expect_refused(start(R"({"skipBudgetRatio": 0.2})"), "skip_budget_ratio");
  expect_refused("{", "spec.json");
  expect_refused(R"({"trainingPath": "/t"})", "model_dir");
  expect_refused(R"({"modelDir": "/m"})", "training_path");
}

TEST(SpecIoTest, TheHashIsOfTheSpecAlone) {
  const auto hash = [](const std::string& json) { return parse_spec_json(json, "x").spec_sha256; };
  const std::string spec = R"({"seed": "4", "metadata": {"a": "1", "b": "2"}})";
  EXPECT_EQ(
      hash(start(spec)),
      hash(R"({"modelDir": "/other", "trainingPath": "/t", "threads": 2, "spec": )" + spec + "}"));
  EXPECT_NE(hash(start(spec)), hash(start(R"({"seed": "5", "metadata": {"a": "1", "b": "2"}})")));
}

TEST(SpecIoTest, ReadsTheGuardAndEveryGateWithItsDefaults) {
  const JobSpec off = parse_spec_json(start("{}"), "spec.json");
  EXPECT_FALSE(off.base_guard.on());
  EXPECT_FALSE(off.needs_probe());
  const JobSpec spec = parse_spec_json(start(R"({
        "watchdog": {"baseGuard": {"klMax": 0.25, "everyEvals": 2, "onTrip": "ON_TRIP_WARN"}},
        "gates": [
          {"task": "held_out", "metric": "loss", "op": "OP_LE", "threshold": -0.5},
          {"name": "speaks", "task": "branch_effect", "metric": "value", "op": "OP_GE", "threshold": 0.02,
           "onFail": "ON_FAIL_FAIL_JOB"},
          {"task": "base_guard", "metric": "kl", "op": "OP_LE", "threshold": 0.1, "use": "USE_POINT",
           "onFail": "ON_FAIL_WARN"}]})"),
                                       "spec.json");
  EXPECT_EQ(spec.base_guard.kl_max, 0.25);
  EXPECT_EQ(spec.base_guard.every_evals, 2);
  EXPECT_FALSE(spec.base_guard.fails);
  EXPECT_TRUE(spec.needs_probe());
  ASSERT_EQ(spec.gates.size(), 3u);
  EXPECT_EQ(spec.gates[0].name, "held_out.loss");
  EXPECT_EQ(spec.gates[0].figure, Gate::Figure::kHeldOutLoss);
  EXPECT_TRUE(spec.gates[0].against_base);
  EXPECT_TRUE(spec.gates[0].bound);
  EXPECT_FALSE(spec.gates[0].at_least);
  EXPECT_EQ(spec.gates[0].threshold, -0.5);
  EXPECT_EQ(spec.gates[0].on_fail, Gate::OnFail::kBlockAlias);
  EXPECT_EQ(spec.gates[0].condition, "held_out.loss - base <= -0.5, high end");
  EXPECT_EQ(spec.gates[1].name, "speaks");
  EXPECT_EQ(spec.gates[1].figure, Gate::Figure::kBranchValue);
  EXPECT_FALSE(spec.gates[1].bound);
  EXPECT_TRUE(spec.gates[1].at_least);
  EXPECT_EQ(spec.gates[1].on_fail, Gate::OnFail::kFailJob);
  EXPECT_EQ(spec.gates[1].condition, "branch_effect.value >= 0.02");
  EXPECT_EQ(spec.gates[2].figure, Gate::Figure::kBaseKl);
  EXPECT_FALSE(spec.gates[2].against_base);
  EXPECT_EQ(spec.gates[2].on_fail, Gate::OnFail::kWarn);
}

TEST(SpecIoTest, RefusesGatesThatAskForWhatIsNotThere) {
  expect_refused(
      start(
          R"({"gates": [{"task": "multi_needle", "metric": "accuracy", "op": "OP_GE", "threshold": 0}]})"),
      "gates[0].evaluation");
  // Under an agent it is the agent's; alone nobody would measure it.
  expect_refused(start(R"({"gates": [{"metric": "loss", "op": "OP_LE", "threshold": 0,
                                      "evaluation": {"perplexity": {"file": "file-1"}}}]})"),
                 "need an agent");
  expect_refused(
      start(R"({"kvoOnly": {}, "gates": [{"task": "branch_effect", "metric": "value", "op": "OP_GE",
                                                     "threshold": 0}]})"),
      "branch_effect needs method dex");
  expect_refused(
      start(R"({"gates": [{"task": "base_guard", "metric": "kl", "op": "OP_LE", "threshold": 0.1,
                                      "against": "AGAINST_BASE"}]})"),
      "gates[0].against");
  expect_refused(start(R"({"watchdog": {"baseGuard": {"klMax": 0.1, "probeFile": "file-1"}}})"),
                 "probe_path");
}

TEST(SpecIoTest, ReadsTheWatchdogsLimits) {
  const auto watchdog = [](const std::string& body) {
    return parse_spec_json(start(R"({"watchdog": {)" + body + "}}"), "spec.json").watchdog;
  };
  const auto unset = watchdog("");
  EXPECT_EQ(unset.loss_factor, 3);  // api.md §3
  EXPECT_EQ(unset.loss_patience, 20);
  EXPECT_EQ(unset.on_trip, Watchdog::OnTrip::kRollback);
  const auto set = watchdog(R"("lossFactor": 1.5, "lossPatience": 7, "onTrip": "ON_TRIP_FAIL")");
  EXPECT_EQ(set.loss_factor, 1.5);
  EXPECT_EQ(set.loss_patience, 7);
  EXPECT_EQ(set.on_trip, Watchdog::OnTrip::kFail);
  EXPECT_EQ(watchdog(R"("onTrip": "ON_TRIP_WARN")").on_trip, Watchdog::OnTrip::kWarn);
  EXPECT_EQ(watchdog(R"("onTrip": "ON_TRIP_ROLLBACK")").on_trip, Watchdog::OnTrip::kRollback);
  expect_refused(start(R"({"watchdog": {"lossFactor": 1}})"), "watchdog.loss_factor");
  expect_refused(start(R"({"watchdog": {"lossPatience": 0}})"), "watchdog.loss_patience");
}

TEST(SpecIoTest, ACalibrationFileComesWithItsPath) {
  const std::string spec = R"({"dex": {"headSelection": {"calibration": {"file": "file-1"}}}})";
  expect_refused(start(spec), "calibration_path");
  const auto read = parse_spec_json(
      R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "calibrationPath": "/c.jsonl",
          "calibrationSha256": "cc", "spec": )" +
          spec + "}",
      "spec.json");
  EXPECT_EQ(read.calibration_path, "/c.jsonl");
  EXPECT_EQ(read.calibration_sha256, "cc");
}

TEST(SpecIoTest, APrecisionThatIsNotThereIsRefusedByName) {
  expect_refused(start(R"({"hyperparameters": {"precision": "PRECISION_BF16"}})"),
                 "hyperparameters.precision: must be PRECISION_FP32");
  (void)parse_spec_json(start(R"({"hyperparameters": {"precision": "PRECISION_FP32"}})"),
                        "spec.json");
}

}  // namespace
}  // namespace dex::train
