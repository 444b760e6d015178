// The base-capability guard on jobs (api.md §3); its numbers by hand: evaluate/base_probe_test.cc.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"

namespace dex::train::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class BaseGuardJobTest : public JobTest {
 protected:
  BaseGuardJobTest() { write_rows(directory_ / "probe.jsonl", probe_rows()); }

  static std::vector<std::vector<int32_t>> probe_rows() { return tiny_rows(20, 40, 80); }

  // 20 updates, evaluated at 0, 2 … 20.
  JobSpec guarded(const std::string& attempt, double kl_max) const {
    JobSpec spec = this->spec(attempt);
    spec.probe_path = directory_ / "probe.jsonl";
    spec.hyperparameters.max_steps = 20;
    spec.evaluation.every_steps = 2;
    spec.base_guard.kl_max = kl_max;
    return spec;
  }
  static std::vector<int64_t> measured_steps(const RecordingSession& session) {
    std::vector<int64_t> steps;
    for (const auto& event : session.data("base_guard")) steps.push_back(event.at("step"));
    return steps;
  }

  // Position by position in fp64, from whole logits.
  double kl_of(const std::string& artefact) const {
    const auto config = model::load_config(directory_ / "model");
    const auto weights = model::load_weights(directory_ / "model", config, {.dtype = at::kFloat});
    const model::Llama llama(config, weights);
    const auto adapter =
        model::load_adapter(artefact, {config, model::base_weights_sha256(directory_ / "model")});
    double sum = 0, count = 0;
    for (const auto& row : probe_rows()) {
      const std::vector<std::vector<int64_t>> document{{row.begin(), row.end()}};
      const auto batch = model::pack(document);
      const auto base = llama.logits(batch).to(at::kDouble).log_softmax(1);
      const auto now = llama.logits(batch, adapter.adaptation).to(at::kDouble).log_softmax(1);
      const auto predicted = static_cast<int64_t>(row.size()) - 1;
      sum += (base.exp() * (base - now)).narrow(0, 0, predicted).sum().item<double>();
      count += static_cast<double>(predicted);
    }
    return sum / count;
  }
};

TEST_F(BaseGuardJobTest, MeasuresAtEveryEvaluationFromExactlyZero) {
  RecordingSession session;
  const Published published = run(guarded("within", 100), session);
  EXPECT_THAT(measured_steps(session), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20));
  const auto events = session.data("base_guard");
  EXPECT_EQ(events.front().at("kl"), 0);  // the identity start is the base
  EXPECT_EQ(events.front().at("probeLoss"), events.front().at("probeLossBase"));
  EXPECT_EQ(events.back().at("limit"), 100);
  EXPECT_EQ(events.back().at("action"), "");
  EXPECT_EQ(published.base_kl, events.back().at("kl").get<double>());
  EXPECT_GT(*published.base_kl, 1e-3);
  EXPECT_NEAR(*published.base_kl, kl_of(published.path), 1e-5 * (1 + *published.base_kl));
  EXPECT_NE(events.back().at("probeLoss"), events.back().at("probeLossBase"));
  const auto config =
      nlohmann::json::parse(bytes_of(fs::path(published.path) / "adapter_config.json"));
  EXPECT_NE(config.dump().find("base_kl"), std::string::npos);
}

TEST_F(BaseGuardJobTest, TripsAboveItsLimitAndPublishesNothing) {
  const JobSpec spec = guarded("tripped", 1e-3);
  RecordingSession session;
  const Failure failure = failure_of(spec, session);
  EXPECT_EQ(failure.exit(), Exit::kGuard);
  EXPECT_EQ(static_cast<int>(failure.exit()), 19);  // jobs.md §6
  EXPECT_EQ(failure.code(), "base_guard_tripped");
  EXPECT_THAT(failure.what(), HasSubstr("above kl_max 0.001"));
  EXPECT_THAT(failure.what(), HasSubstr("Lower the learning rates"));
  const auto last = session.data("base_guard").back();
  EXPECT_EQ(last.at("action"), "FAIL");
  EXPECT_GT(last.at("kl").get<double>(), 1e-3);
  EXPECT_FALSE(fs::exists(spec.attempt_dir / "final"));
}

TEST_F(BaseGuardJobTest, WarnGoesOn) {
  JobSpec spec = guarded("warned", 1e-3);
  spec.base_guard.fails = false;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_EQ(session.data("base_guard").back().at("action"), "WARN");
  EXPECT_GT(*published.base_kl, 1e-3);
}

TEST_F(BaseGuardJobTest, EverySoManyEvaluationsAndAlwaysTheLast) {
  JobSpec spec = guarded("sparse", 100);
  spec.base_guard.every_evals = 4;
  RecordingSession session;
  run(spec, session);
  EXPECT_THAT(measured_steps(session), ElementsAre(0, 8, 16, 20));
}

// Of early stopping the best weights are published, not the last ones: these are judged.
TEST_F(BaseGuardJobTest, WhatIsPublishedIsMeasuredToo) {
  JobSpec spec = guarded("best", 100);
  spec.base_guard.every_evals = 1000;
  spec.early_stopping.enabled = true;
  spec.early_stopping.patience = 1000;
  write_rows(directory_ / "few.jsonl", tiny_rows(6, 40, 79));
  spec.training_path = directory_ / "few.jsonl";
  spec.hyperparameters.learning_rate = 0.03;
  spec.hyperparameters.schedule = LrSchedule::kConstant;
  spec.hyperparameters.max_grad_norm = 1e6;
  spec.anneal.steps = 4;
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_LT(published.served_step, 20);
  EXPECT_THAT(measured_steps(session), ElementsAre(0, 20, published.served_step));
  EXPECT_NEAR(*published.base_kl, kl_of(published.path), 1e-5 * (1 + *published.base_kl));
}

TEST_F(BaseGuardJobTest, AResumedJobMeasuresTheSame) {
  RecordingSession straight;
  run(guarded("straight", 100), straight);
  RecordingSession first;
  bool told = false;
  first.script = [&](const Progress& progress) -> Command {
    if (told || progress.step < 7) return {};
    told = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(guarded("first", 100), first), Stopped);
  JobSpec spec = guarded("second", 100);
  spec.attempt = 2;
  spec.checkpoint_dir = first.checkpoints.back().path;
  RecordingSession second;
  run(spec, second);
  auto all = first.data("base_guard");
  for (const auto& event : second.data("base_guard")) all.push_back(event);
  EXPECT_EQ(all, straight.data("base_guard"));
}

TEST_F(BaseGuardJobTest, EveryMethodStartsAtItsBase) {
  for (const auto train : kOtherTrains) {
    JobSpec spec = guarded(test_name(train), 1000);
    choose(train, spec);
    spec.hyperparameters.max_steps = 4;
    RecordingSession session;
    const Published published = run(spec, session);
    const auto events = session.data("base_guard");
    EXPECT_EQ(events.front().at("kl"), 0) << test_name(train);
    EXPECT_GT(*published.base_kl, 0) << test_name(train);
  }
}

// Without a guard a gate alone measures, once.
TEST_F(BaseGuardJobTest, AGateOnIt) {
  JobSpec spec = guarded("gated", 0);
  Gate gate;
  gate.name = "near";
  gate.figure = Gate::Figure::kBaseKl;
  gate.against_base = false;
  gate.threshold = 1e-6;
  spec.gates.push_back(gate);
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_THAT(measured_steps(session), ElementsAre(20));
  EXPECT_EQ(session.data("base_guard").at(0).at("limit"), 0);
  ASSERT_EQ(published.gate_results.size(), 1u);
  EXPECT_NEAR(published.gate_results[0].figure.value, *published.base_kl, 1e-12);
  EXPECT_EQ(published.gate_results[0].figure.n, 20);
  EXPECT_FALSE(published.gate_results[0].passed);
  EXPECT_FALSE(published.promotable);
}

TEST_F(BaseGuardJobTest, NeedsHeldOutRowsAndAProbe) {
  JobSpec spec = guarded("none", 1);
  spec.validation_path.clear();
  spec.validation_split = 0;
  EXPECT_EQ(failure_of(spec).param(), "watchdog.base_guard.kl_max");
  // The tiny model has no tokenizer for the general text.
  spec = guarded("no_probe", 1);
  spec.probe_path.clear();
  EXPECT_EQ(failure_of(spec).exit(), Exit::kBadSpec);
  EXPECT_EQ(failure_of(spec).param(), "watchdog.base_guard.probe_file");
  spec.probe_path = directory_ / "probe.jsonl";
  spec.probe_sha256 = std::string(64, 'b');
  EXPECT_EQ(failure_of(spec).exit(), Exit::kBadData);
}

}  // namespace
}  // namespace dex::train::testing
