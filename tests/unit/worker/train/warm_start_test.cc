#include "worker/train/warm_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "services/base/sha256.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "tests/unit/worker/train/resolved_preset.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class WarmStartTest : public JobTest {
 protected:
  // A job whose options are those of `first`, going on from what it published.
  JobSpec after(const JobSpec& first, const Published& published,
                const std::string& attempt) const {
    JobSpec spec = first;
    spec.attempt_dir = directory_ / attempt;
    spec.start_adapter = "ft:tiny:default::parent";
    spec.start_adapter_dir = published.path;
    spec.start_adapter_sha256 = published.manifest_sha256;
    if (!spec.dex.has_branch()) return spec;
    // What the scheduler makes of it (scheduler/core/warm_start.h).
    if (spec.dex.learns_lambda()) {
      spec.dex.lambda = {.schedule = model::Schedule::kLearned};
    } else {
      const double value = published.branch_effect.layers.at(0).lambda;
      spec.dex.lambda = {.schedule = model::Schedule::kConstant, .value = value};
    }
    return spec;
  }
  std::map<std::string, at::Tensor> tensors(const fs::path& folder) const {
    const auto file = model::Safetensors::open(folder / "adapter_model.safetensors",
                                               model::Safetensors::Access::kRead);
    std::map<std::string, at::Tensor> out;
    for (const auto& [name, info] : file.tensors()) out[name] = file.tensor(name).clone();
    return out;
  }
  nlohmann::json config(const fs::path& folder) const {
    return nlohmann::json::parse(bytes_of(folder / "adapter_config.json"));
  }
};

// How the options of a case come to be: a preset, or one of the other ways of training.
struct Method {
  std::string name;
  std::function<JobSpec(const JobSpec&)> choose;
};
Method preset(const std::string& name) {
  return {name,
          [name](const JobSpec& place) { return resolved_preset(name, tiny_config(), place, 6); }};
}
Method other(model::Train train) {
  return {test_name(train), [train](JobSpec spec) {
            choose(train, spec);
            return spec;
          }};
}

class WarmStartOfMethodTest : public WarmStartTest, public ::testing::WithParamInterface<Method> {};

TEST_P(WarmStartOfMethodTest, BeginsWhereTheAdapterIsAndTrainsOn) {
  const JobSpec first = GetParam().choose(spec("first"));
  RecordingSession unused;
  const Published parent = run(first, unused);

  RecordingSession session;
  const Published child = run(after(first, parent, "second"), session);
  // Before the first update: the adapter's loss; what it is compared with is still the base's.
  EXPECT_NEAR(session.numbers("eval_complete", "validLoss").at(0), *parent.valid_loss, 1e-5);
  EXPECT_EQ(*child.base_valid_loss, *parent.base_valid_loss);
  EXPECT_NE(*child.valid_loss, *parent.valid_loss);
  EXPECT_EQ(child.start_adapter, "ft:tiny:default::parent");

  // Rates too small to move an fp32 number leave the adapter's own values and heads.
  JobSpec still = after(first, parent, "still");
  still.hyperparameters.learning_rate = still.hyperparameters.branch_learning_rate =
      still.hyperparameters.lambda_learning_rate = 1e-30;
  RecordingSession silent;
  const Published copy = run(still, silent);
  const auto before = tensors(parent.path), now = tensors(copy.path);
  ASSERT_EQ(before.size(), now.size());
  for (const auto& [name, tensor] : before) {
    // λ_learn takes up λ as it acted, whatever the schedule it came from.
    if (name.ends_with("lambda_learn")) continue;
    EXPECT_TRUE(at::equal(tensor, now.at(name))) << name;
  }
  if (!first.dex.has_branch()) return;
  EXPECT_EQ(config(parent.path).at("selected_heads"), config(copy.path).at("selected_heads"));
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_NEAR(config(parent.path).at("lambda")[l].get<double>(),
                config(copy.path).at("lambda")[l].get<double>(), 1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WarmStartOfMethodTest,
                         ::testing::Values(preset("paper"), preset("small"), preset("multilingual"),
                                           other(model::Train::kKvoOnly),
                                           other(model::Train::kLora),
                                           other(model::Train::kAdapter),
                                           other(model::Train::kLoraDex),
                                           other(model::Train::kDexOnly)),
                         [](const auto& info) { return info.param.name; });

TEST_F(WarmStartTest, ResumesToTheSameBitsWithoutTheAdapter) {
  const JobSpec first = resolved_preset("paper", tiny_config(), spec("first"), 8);
  RecordingSession unused;
  const Published parent = run(first, unused);
  const auto second = [&](const std::string& attempt) { return after(first, parent, attempt); };
  RecordingSession straight;
  run(second("straight"), straight);

  RecordingSession stopped;
  bool told = false;
  stopped.script = [&](const Progress& progress) -> Command {
    if (told || progress.step < 5) return {};
    told = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(second("broken-off"), stopped), Stopped);
  JobSpec rest = second("rest");
  rest.checkpoint_dir = stopped.checkpoints.back().path;
  fs::remove_all(parent.path);
  RecordingSession resumed;
  run(rest, resumed);
  for (const char* file :
       {"final/adapter_model.safetensors", "step-8/optimizer.safetensors", "step-8/state.json"})
    EXPECT_TRUE(bytes_of(directory_ / "straight" / file) == bytes_of(directory_ / "rest" / file))
        << file;

  rest.start_adapter_sha256 = std::string(64, '0');
  rest.attempt_dir = directory_ / "other";
  EXPECT_THAT(failure_of(rest).what(), HasSubstr("another start_adapter_sha256"));
}

TEST_F(WarmStartTest, TheArtefactSaysWhereItCameFrom) {
  JobSpec first = spec("first");
  RecordingSession unused;
  const Published parent = run(first, unused);
  RecordingSession session;
  const Published child = run(after(first, parent, "second"), session);
  const auto metrics = config(child.path).at("metrics");
  EXPECT_EQ(metrics.at("start_adapter"), "ft:tiny:default::parent");
  EXPECT_EQ(metrics.at("start_adapter_sha256"), parent.manifest_sha256);
  const auto event = std::find_if(session.events.begin(), session.events.end(),
                                  [](const Event& e) { return e.type == "training_start"; });
  EXPECT_THAT(event->message, HasSubstr("going on from ft:tiny:default::parent"));
}

TEST_F(WarmStartTest, RefusesWhatDoesNotFitByName) {
  JobSpec first = spec("first");
  RecordingSession unused;
  const Published parent = run(first, unused);
  const auto refusal = [&](const std::function<void(JobSpec&)>& change) {
    JobSpec second = after(first, parent, "second");
    change(second);
    return failure_of(second);
  };
  const Failure sign = refusal([](JobSpec& s) { s.dex.sign = model::Sign::kPlus; });
  EXPECT_EQ(sign.exit(), Exit::kBadSpec);
  EXPECT_EQ(sign.code(), "adapter_mismatch");
  EXPECT_THAT(sign.what(), HasSubstr("sign is plus, the adapter's is minus"));
  EXPECT_THAT(refusal([](JobSpec& s) { choose(model::Train::kLora, s); }).what(),
              HasSubstr("train is lora, the adapter's is kvo+dex"));
  EXPECT_THAT(refusal([](JobSpec& s) { s.dex.projection = model::Projection::kPerHead; }).what(),
              HasSubstr("projection is per_head"));
  EXPECT_THAT(refusal([](JobSpec& s) { s.dex.lambda = {}; }).what(),
              HasSubstr("lambda.schedule is paper_eq4, which begins elsewhere"));
  EXPECT_THAT(refusal([](JobSpec& s) {
                s.dex.lambda = {.schedule = model::Schedule::kConstant, .value = 0.7};
              }).what(),
              HasSubstr("lambda.value is 0.7, the adapter's λ"));
  // No fault of the worker's either: kBrokenInput would take it out of service.
  const Failure hash = refusal([](JobSpec& s) { s.start_adapter_sha256 = std::string(64, '0'); });
  EXPECT_EQ(hash.exit(), Exit::kBadSpec);
  EXPECT_EQ(hash.code(), "adapter_mismatch");
  EXPECT_THAT(hash.what(), HasSubstr("checksums.json has SHA-256"));
  const Failure missing = refusal([this](JobSpec& s) {
    s.start_adapter_dir = directory_ / "nowhere";
    s.start_adapter_sha256.clear();
  });
  EXPECT_EQ(missing.exit(), Exit::kBadSpec);
  const Failure base = refusal([this](JobSpec& s) { s.model_dir = other_base(); });
  EXPECT_EQ(base.exit(), Exit::kBadSpec);
  EXPECT_THAT(base.what(), HasSubstr("made for another base"));
}

TEST_F(WarmStartTest, AnAdapterThatEndedWithoutLambdaIsNoStart) {
  JobSpec first = spec("first");
  first.dex.lambda = {.schedule = model::Schedule::kSeedCosine, .start = 0.1, .end = 0};
  first.anneal.steps = 6;  // all of the run
  RecordingSession unused;
  const Published parent = run(first, unused);
  const Failure failure = failure_of(after(first, parent, "second"));
  EXPECT_EQ(failure.code(), "adapter_mismatch");
  EXPECT_THAT(failure.what(),
              HasSubstr("lambda is 0 for the whole job: the adapter that it goes on "
                        "from ended at λ 0"));
}

// Selecting again is warned of as selecting is; a branch that is all that is trained keeps its
// heads.
TEST_F(WarmStartTest, SelectingAgainWarnsAndLeavesDexOnlyItsHeads) {
  JobSpec first = spec("first");
  choose(model::Train::kDexOnly, first);
  RecordingSession unused;
  const Published parent = run(first, unused);

  JobSpec none = after(first, parent, "none");
  none.heads = {};
  none.heads.criterion = evaluate::Criterion::kThreshold;
  none.heads.tau = 1000;  // and eta 0: no head stays
  none.reselect_every = 2;
  RecordingSession empty;
  const Published kept = run(none, empty);
  EXPECT_TRUE(empty.has_advice("selection_empty"));
  EXPECT_EQ(config(kept.path).at("selected_heads"), config(parent.path).at("selected_heads"));

  JobSpec all = none;
  all.attempt_dir = directory_ / "all";
  all.heads.tau = -1000;
  RecordingSession wide;
  const Published every = run(all, wide);
  EXPECT_TRUE(wide.has_advice("selection_wide"));
  EXPECT_EQ(config(every.path).at("selected_heads"),
            nlohmann::json::parse("[[0,1,2,3],[0,1,2,3]]"));
}

TEST_F(WarmStartTest, GoesOnFromTheLayersThatTheAdapterHas) {
  JobSpec first = resolved_preset("small", tiny_config(), spec("first"), 6);
  first.dex.first_layer = 1;
  RecordingSession unused;
  const Published parent = run(first, unused);
  JobSpec second = after(first, parent, "second");
  second.dex.lambda.value = parent.branch_effect.layers.at(1).lambda;
  RecordingSession session;
  const Published child = run(second, session);
  EXPECT_NEAR(session.numbers("eval_complete", "validLoss").at(0), *parent.valid_loss, 1e-5);
  EXPECT_EQ(child.trained_parameters, parent.trained_parameters);

  second.dex.first_layer = 0;
  second.attempt_dir = directory_ / "third";
  EXPECT_THAT(failure_of(second).what(),
              HasSubstr("hyperparameters.first_layer is 0, the adapter's is 1"));
}

TEST_F(WarmStartTest, AWholeModelIsNoAdapter) {
  for (const auto train : {model::Train::kFull, model::Train::kDiffAttention}) {
    JobSpec first = spec("first-" + test_name(train));
    choose(train, first);
    RecordingSession unused;
    const Published parent = run(first, unused);
    JobSpec second = after(first, parent, "second-" + test_name(train));
    choose(model::Train::kKvoOnly, second);
    EXPECT_THAT(failure_of(second).what(), HasSubstr("is a whole model"));
  }
}

TEST_F(WarmStartTest, ASecondMapIsGivenToABaseModelOnly) {
  JobSpec first = spec("first");
  choose(model::Train::kKvoOnly, first);
  RecordingSession unused;
  const Published parent = run(first, unused);
  JobSpec second = after(first, parent, "second");
  choose(model::Train::kDiffAttention, second);
  const Failure failure = failure_of(second);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(), HasSubstr("method diff begins from a base model"));
}

}  // namespace
}  // namespace dex::train::testing
