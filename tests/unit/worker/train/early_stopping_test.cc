#include "worker/train/early_stopping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "tests/unit/worker/train/resolved_preset.h"
#include "worker/train/checkpoint.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Feeds losses of evaluations at steps 0, 10, 20 …; returns how many were taken before the stop.
int taken_until_stop(EarlyStopping& early, const std::vector<double>& losses) {
  for (size_t i = 0; i < losses.size(); ++i) {
    early.take(static_cast<int64_t>(i) * 10, losses[i], true);
    if (early.state().stopped) return static_cast<int>(i) + 1;
  }
  return -1;
}

TEST(EarlyStoppingTest, StopsAfterPatienceEvaluationsWithoutAnImprovement) {
  EarlyStopping early({.enabled = true, .patience = 3});
  // The base's 3.0 is warm-up; 2.5 at step 20 is the best; 2.6, 2.5, 2.55 are no improvement.
  EXPECT_EQ(taken_until_stop(early, {3.0, 2.8, 2.5, 2.6, 2.5, 2.55, 1.0}), 6);
  EXPECT_EQ(early.state().best_step, 20);
  EXPECT_EQ(early.state().best_loss, 2.5);
}

TEST(EarlyStoppingTest, AnImprovementEndsTheRow) {
  EarlyStopping early({.enabled = true, .patience = 2});
  EXPECT_EQ(taken_until_stop(early, {3.0, 2.8, 2.9, 2.7, 2.8, 2.6, 2.7, 2.7}), 8);
}

TEST(EarlyStoppingTest, AnImprovementIsMoreThanMinDeltaAndTheBestIsTheLowest) {
  EarlyStopping early({.enabled = true, .patience = 2, .min_delta = 0.1});
  // 2.45 is no improvement on 2.5 by more than 0.1, but lower; 2.39 is one on 2.5.
  EXPECT_EQ(taken_until_stop(early, {3.0, 2.5, 2.45, 2.39, 2.35, 2.38}), 6);
  EXPECT_EQ(early.state().best_step, 40);
  EXPECT_EQ(early.state().best_loss, 2.35);
}

TEST(EarlyStoppingTest, WithoutWarmupTheBaseIsTheReferenceButNeverTheBest) {
  EarlyStopping early({.enabled = true, .patience = 2, .warmup_evals = 0});
  EXPECT_EQ(taken_until_stop(early, {2.0, 2.5, 2.4}), 3);
  EXPECT_EQ(early.state().best_step, 20);
}

TEST(EarlyStoppingTest, WarmupEvaluationsCountInNoWay) {
  EarlyStopping early({.enabled = true, .patience = 1, .warmup_evals = 3});
  EXPECT_EQ(taken_until_stop(early, {3.0, 2.0, 2.1, 2.5, 2.4, 2.45}), 6);
  EXPECT_EQ(early.state().best_step, 40);
}

TEST(EarlyStoppingTest, NeitherNaNNorWeightsThatCantBePublishedAreTheBest) {
  EarlyStopping early({.enabled = true, .patience = 2, .warmup_evals = 0});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(early.take(10, nan, true));
  EXPECT_FALSE(early.take(20, 1.0, false));
  EXPECT_TRUE(early.take(30, 2.0, true));
  EXPECT_EQ(early.state().best_step, 30);
  EXPECT_EQ(early.state().in_row, 0);
}

TEST(EarlyStoppingTest, SwitchedOffItTakesNothing) {
  EarlyStopping early({});
  EXPECT_EQ(taken_until_stop(early, {1, 2, 3, 4, 5, 6, 7, 8}), -1);
  EXPECT_EQ(early.state(), EarlyStopping::State{});
}

class EarlyStoppingJobTest : public JobTest {
 protected:
  EarlyStoppingJobTest() { write_rows(directory_ / "few.jsonl", tiny_rows(6, 40, 79)); }

  // A job that learns six rows by heart: its held-out loss falls until step 10 (5.35), then rises.
  // Rates and λ do not depend on the number of updates, so a job of n updates is the beginning of a
  // longer one.
  JobSpec hasty(const std::string& attempt, int64_t updates = 60) const {
    JobSpec spec = this->spec(attempt);
    spec.training_path = directory_ / "few.jsonl";
    spec.hyperparameters.max_steps = updates;
    spec.hyperparameters.learning_rate = 0.03;
    spec.hyperparameters.schedule = LrSchedule::kConstant;
    spec.hyperparameters.warmup_ratio = 0;
    spec.hyperparameters.max_grad_norm = 1e6;
    spec.anneal.steps = 4;
    spec.evaluation.every_steps = 2;
    spec.early_stopping.enabled = true;
    spec.early_stopping.patience = 3;
    return spec;
  }
  RecordingSession stopped_at(const JobSpec& spec, int64_t step) const {
    RecordingSession session;
    bool told = false;
    session.script = [&](const Progress& progress) -> Command {
      if (told || progress.step < step) return {};
      told = true;
      return {Command::Kind::kStop, "", StopReason::kDrain};
    };
    EXPECT_THROW(run(spec, session), Stopped);
    session.script = nullptr;
    return session;
  }
  std::string adapter_of(const std::string& attempt) const {
    return bytes_of(directory_ / attempt / "final/adapter_model.safetensors");
  }
};

TEST_F(EarlyStoppingJobTest, StopsAndPublishesTheBestWeightsAsAJobOfSoManyUpdatesWould) {
  RecordingSession session;
  const Published published = run(hasty("stopped"), session);
  ASSERT_TRUE(published.early_stopped);
  const auto event = session.data("early_stopped").at(0);
  const int64_t best = event.at("bestStep"), last = event.at("step");
  EXPECT_GT(best, 0);
  EXPECT_EQ(last, best + 6);  // three evaluations, two updates apart
  EXPECT_LT(last, 60);
  EXPECT_EQ(event.at("patience"), 3);
  EXPECT_EQ(session.last.step, last);
  EXPECT_EQ(published.served_step, best);
  EXPECT_EQ(published.best_step, best);

  double lowest = 1e9;
  for (const auto& evaluation : session.data("eval_complete"))
    if (evaluation.at("step") > 0)
      lowest = std::min(lowest, evaluation.at("validLoss").get<double>());
  EXPECT_EQ(published.valid_loss, lowest);
  EXPECT_EQ(published.best_valid_loss, lowest);
  const auto complete = session.data("training_complete").at(0);
  EXPECT_EQ(complete.at("servedStep"), best);
  EXPECT_EQ(complete.at("earlyStopped"), true);

  // The same weights and λ, bit for bit, as of a job that was asked for so many updates.
  JobSpec exact = hasty("exact", best);
  exact.early_stopping.enabled = false;
  RecordingSession unused;
  run(exact, unused);
  EXPECT_TRUE(adapter_of("stopped") == adapter_of("exact"));
  const auto lambda = [&](const std::string& attempt) {
    return nlohmann::json::parse(bytes_of(directory_ / attempt / "final/adapter_config.json"))
        .at("lambda");
  };
  EXPECT_EQ(lambda("stopped"), lambda("exact"));

  // Best and last lie apart in the last checkpoint.
  const fs::path checkpoint = directory_ / "stopped" / ("step-" + std::to_string(last));
  EXPECT_FALSE(bytes_of(checkpoint / "best.safetensors") ==
               bytes_of(checkpoint / "adapter.safetensors"));
  EXPECT_TRUE(
      bytes_of(checkpoint / "best.safetensors") ==
      bytes_of(directory_ / "exact" / ("step-" + std::to_string(best)) / "adapter.safetensors"));
}

TEST_F(EarlyStoppingJobTest, WithoutRestoreBestTheLastWeightsArePublished) {
  JobSpec spec = hasty("last");
  spec.early_stopping.restore_best = false;
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_TRUE(published.early_stopped);
  EXPECT_EQ(published.served_step, session.last.step);
  EXPECT_LT(*published.best_step, published.served_step);
  EXPECT_EQ(published.valid_loss,
            session.data("eval_complete").back().at("validLoss").get<double>());
  EXPECT_FALSE(fs::exists(directory_ / "last" / ("step-" + std::to_string(session.last.step)) /
                          "best.safetensors"));
}

// The lowest loss of all, at step 10, is a warm-up's and counts in no way: neither its step nor its
// loss is called the best.
TEST_F(EarlyStoppingJobTest, TheBestStepAndTheBestLossAreOfOneEvaluation) {
  const auto warm = [&](const std::string& attempt) {
    JobSpec spec = hasty(attempt);
    spec.early_stopping.warmup_evals = 8;  // of steps 0, 2 … 14
    return spec;
  };
  RecordingSession session;
  const Published whole = run(warm("warm"), session);
  ASSERT_TRUE(whole.best_step);
  EXPECT_GE(*whole.best_step, 16);
  double lowest = 1e9;
  for (const auto& evaluation : session.data("eval_complete")) {
    const double loss = evaluation.at("validLoss");
    lowest = std::min(lowest, loss);
    if (evaluation.at("step") == *whole.best_step) {
      EXPECT_EQ(whole.best_valid_loss, loss);
    }
  }
  EXPECT_LT(lowest, *whole.best_valid_loss);

  JobSpec second = warm("second");
  second.attempt = 2;
  second.checkpoint_dir = stopped_at(warm("first"), 13).checkpoints.back().path;
  RecordingSession resumed;
  const Published same = run(second, resumed);
  EXPECT_EQ(same.best_step, whole.best_step);
  EXPECT_EQ(same.best_valid_loss, whole.best_valid_loss);
}

TEST_F(EarlyStoppingJobTest, WithoutItTheBestIsTheLowestOfAll) {
  JobSpec spec = hasty("plain", 20);
  spec.early_stopping.enabled = false;
  RecordingSession session;
  const Published published = run(spec, session);
  double lowest = 1e9;
  int64_t step = -1;
  for (const auto& evaluation : session.data("eval_complete")) {
    if (evaluation.at("validLoss").get<double>() >= lowest) continue;
    lowest = evaluation.at("validLoss");
    step = evaluation.at("step");
  }
  EXPECT_EQ(published.best_valid_loss, lowest);
  EXPECT_EQ(published.best_step, step);
  EXPECT_EQ(published.served_step, 20);
}

TEST_F(EarlyStoppingJobTest, AJobThatRunsToItsEndPublishesItsBestToo) {
  JobSpec spec = hasty("whole", 20);
  spec.early_stopping.patience = 1000;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_FALSE(published.early_stopped);
  EXPECT_TRUE(session.data("early_stopped").empty());
  EXPECT_EQ(session.last.step, 20);
  EXPECT_EQ(published.served_step, *published.best_step);
  EXPECT_LT(published.served_step, 20);
}

// Its last update is the one after which it would have been stopped: nothing was cut short.
TEST_F(EarlyStoppingJobTest, AJobWhosePatienceEndsWithItIsNotStoppedEarly) {
  RecordingSession longer;
  const Published stopped = run(hasty("longer"), longer);
  ASSERT_TRUE(stopped.early_stopped);
  const int64_t last = longer.last.step;
  RecordingSession session;
  const Published published = run(hasty("whole", last), session);
  EXPECT_FALSE(published.early_stopped);
  EXPECT_TRUE(session.data("early_stopped").empty());
  EXPECT_EQ(session.data("training_complete").at(0).at("earlyStopped"), false);
  EXPECT_EQ(session.last.step, last);
  EXPECT_EQ(published.served_step, stopped.served_step);
}

TEST_F(EarlyStoppingJobTest, ResumesToTheSameBitsFromEveryPlace) {
  RecordingSession straight;
  const Published whole = run(hasty("straight"), straight);
  ASSERT_TRUE(whole.early_stopped);
  const int64_t last = straight.last.step, best = whole.served_step;
  // 1: nothing evaluated but the base; at the best evaluation; between it and the stop; before it.
  for (const int64_t at : {int64_t{1}, best, best + 3, last - 1}) {
    const std::string name = std::to_string(at);
    const auto first = stopped_at(hasty("first" + name), at);
    JobSpec second = hasty("second" + name);
    second.attempt = 2;
    second.checkpoint_dir = first.checkpoints.back().path;
    RecordingSession session;
    const Published resumed = run(second, session);
    EXPECT_EQ(resumed.served_step, best) << at;
    EXPECT_EQ(resumed.valid_loss, whole.valid_loss) << at;
    EXPECT_TRUE(adapter_of("straight") == adapter_of("second" + name)) << at;
    for (const char* file :
         {"adapter.safetensors", "best.safetensors", "optimizer.safetensors", "state.json"}) {
      const fs::path step = "step-" + std::to_string(last);
      EXPECT_TRUE(bytes_of(directory_ / "straight" / step / file) ==
                  bytes_of(directory_ / ("second" + name) / step / file))
          << file << " at " << at;
    }
  }
}

TEST_F(EarlyStoppingJobTest, AnAttemptLostAfterTheStopOnlyPublishes) {
  RecordingSession straight;
  run(hasty("straight"), straight);
  JobSpec second = hasty("second");
  second.checkpoint_dir = straight.checkpoints.back().path;
  RecordingSession session;
  const Published published = run(second, session);
  EXPECT_TRUE(published.early_stopped);
  EXPECT_TRUE(session.numbers("metrics", "step").empty());  // no update was made again
  EXPECT_TRUE(adapter_of("straight") == adapter_of("second"));
}

TEST_F(EarlyStoppingJobTest, ACheckpointWithoutItsBestWeightsIsRefused) {
  RecordingSession straight;
  run(hasty("straight"), straight);
  JobSpec second = hasty("second");
  second.checkpoint_dir = straight.checkpoints.back().path;
  fs::remove(second.checkpoint_dir / "best.safetensors");
  const Failure failure = failure_of(second);
  EXPECT_EQ(failure.exit(), Exit::kBrokenCheckpoint);
  EXPECT_THAT(failure.what(), HasSubstr("best.safetensors"));
}

// Masks that are on their way to 0 or 1 are never published; the best ones are those of its step.
TEST_F(EarlyStoppingJobTest, AReselectingJobPublishesWholeMasks) {
  JobSpec spec = resolved_preset("multilingual", tiny_config(), this->spec("reselected"), 40);
  spec.heads.tau = 0.2;
  spec.reselect_every = 5;
  spec.evaluation.every_steps = 1;
  spec.early_stopping = {.enabled = true, .patience = 8, .min_delta = 50};
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_TRUE(published.early_stopped);
  EXPECT_FALSE(published.path.empty());
}

// A model whose second map is only mixed in half is none that could be published (method.md §8.4):
// until the mix is 1 no evaluation counts. Then: step 10 warm-up, 12 the reference, 14 and 16 no
// improvement.
TEST_F(EarlyStoppingJobTest, CountsNothingWhileASecondMapIsMixedIn) {
  JobSpec spec = hasty("mixed", 20);
  choose(model::Train::kDiffAttention, spec);
  spec.mix_in_ratio = 0.5;
  spec.early_stopping = {.enabled = true, .patience = 2, .min_delta = 50};
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_TRUE(published.early_stopped);
  EXPECT_EQ(session.data("early_stopped").at(0).at("step"), 16);
  EXPECT_GE(published.served_step, 12);
  double lowest = 1e9;
  for (const auto& evaluation : session.data("eval_complete")) {
    if (evaluation.at("step") >= 12)
      lowest = std::min(lowest, evaluation.at("validLoss").get<double>());
  }
  EXPECT_EQ(published.best_valid_loss, lowest);
  for (const auto& saved : session.data("checkpoint_save")) {
    if (saved.at("isBest") == true) {
      EXPECT_GE(saved.at("step"), 12);
    }
  }
}

TEST_F(EarlyStoppingJobTest, NeedsHeldOutRows) {
  JobSpec spec = hasty("none");
  spec.validation_path.clear();
  spec.validation_split = 0;
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(), HasSubstr("early_stopping.enabled: needs held-out rows"));
}

}  // namespace
}  // namespace dex::train::testing
