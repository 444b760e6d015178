// method.md §10 item 4, its end: what is published after n updates has λ(n), whatever the schedule,
// also where a job was stopped early and where its best weights are published instead of its last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "tests/unit/worker/train/job_fixture.h"
#include "worker/model/adapter.h"

namespace dex::train::testing {
namespace {

constexpr int64_t kAnneal = 40;

// §2.2 and §3.3 once more: λ of `layer` after n updates of a job whose T is `anneal`.
double lambda_after(const model::LambdaOptions& options, int64_t anneal, size_t layer, int64_t n,
                    double learned) {
  const double ratio = static_cast<double>(n) / static_cast<double>(anneal);
  const double alpha = std::min(1.0, ratio);
  switch (options.schedule) {
    case model::Schedule::kPaperEq4: {
      const double init = 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
      return (1 - alpha) * ratio * init + alpha * learned;
    }
    case model::Schedule::kSeedCosine:
      return options.start +
             (options.end - options.start) * 0.5 * (1 - std::cos(std::numbers::pi * alpha));
    case model::Schedule::kConstant:
      return options.value;
    case model::Schedule::kLearned:
      return learned;
  }
  return NAN;
}

class PublishedLambdaTest : public JobTest, public ::testing::WithParamInterface<model::Schedule> {
 protected:
  // Learns six rows by heart, so that its held-out loss soon rises: 60 updates are never made.
  JobSpec hasty_job() const {
    write_rows(directory_ / "six.jsonl", tiny_rows(6, 40, 79));
    JobSpec spec = this->spec();
    spec.training_path = directory_ / "six.jsonl";
    spec.dex.lambda = {.schedule = GetParam(),
                       .learn_init = GetParam() == model::Schedule::kLearned ? 0.2 : 0.04,
                       .start = 0.1,
                       .end = 0.5,
                       .value = 0.3};
    spec.anneal.steps = kAnneal;
    spec.hyperparameters.max_steps = 60;
    spec.hyperparameters.learning_rate = 0.03;
    spec.hyperparameters.schedule = LrSchedule::kConstant;
    spec.hyperparameters.warmup_ratio = 0;
    spec.hyperparameters.max_grad_norm = 1e6;
    spec.evaluation.every_steps = 2;
    spec.early_stopping.enabled = true;
    spec.early_stopping.patience = 3;
    return spec;
  }

  // Runs the job and compares what serving would load with λ after the updates it is of.
  Published expect_lambda(const JobSpec& spec, int64_t anneal, RecordingSession& session) const {
    const Published out = run(spec, session);
    const auto config = model::load_config(directory_ / "model");
    const model::Adapter adapter =
        model::load_adapter(out.path, {config, model::base_weights_sha256(directory_ / "model")});
    const auto file =
        nlohmann::json::parse(bytes_of(std::filesystem::path(out.path) / "adapter_config.json"));
    EXPECT_EQ(adapter.lambda.size(), 2u);
    for (size_t l = 0; l < adapter.lambda.size(); ++l) {
      const at::Tensor& learned = adapter.adaptation.layers[l].branch.lambda_learn;
      const double want = lambda_after(spec.dex.lambda, anneal, l, out.served_step,
                                       learned.defined() ? learned.item<double>() : NAN);
      EXPECT_NEAR(adapter.lambda[l], want, 1e-9) << "layer " << l;
      EXPECT_EQ(file.at("lambda")[l].get<double>(), adapter.lambda[l]);
      if (learned.defined()) {
        EXPECT_NE(learned.item<float>(), static_cast<float>(spec.dex.lambda.learn_init));
      }
    }
    return out;
  }

  // Whether λ is another one after each update before T.
  static bool moves() {
    return GetParam() == model::Schedule::kPaperEq4 || GetParam() == model::Schedule::kSeedCosine;
  }
};

TEST_P(PublishedLambdaTest, OfAWholeJob) {
  JobSpec spec = hasty_job();
  spec.early_stopping = {};
  spec.hyperparameters.max_steps = 7;
  RecordingSession session;
  const Published out = expect_lambda(spec, /*anneal=*/7, session);  // T is clamped to N
  EXPECT_EQ(out.served_step, 7);
}

TEST_P(PublishedLambdaTest, OfAJobStoppedEarly) {
  JobSpec spec = hasty_job();
  spec.early_stopping.restore_best = false;
  RecordingSession session;
  const Published out = expect_lambda(spec, kAnneal, session);
  ASSERT_TRUE(out.early_stopped);
  EXPECT_EQ(out.served_step, session.last.step);
  EXPECT_LT(out.served_step, kAnneal);
}

TEST_P(PublishedLambdaTest, OfItsBestWeights) {
  const JobSpec spec = hasty_job();
  RecordingSession session;
  const Published out = expect_lambda(spec, kAnneal, session);
  ASSERT_TRUE(out.early_stopped);
  ASSERT_LT(out.served_step, session.last.step);
  if (!moves()) return;
  const auto in_layer_1 = [&](int64_t n) {
    return lambda_after(spec.dex.lambda, kAnneal, 1, n, 0.04);
  };
  EXPECT_GT(std::abs(in_layer_1(out.served_step) - in_layer_1(session.last.step)), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PublishedLambdaTest,
                         ::testing::Values(model::Schedule::kPaperEq4, model::Schedule::kSeedCosine,
                                           model::Schedule::kConstant, model::Schedule::kLearned),
                         [](const auto& info) { return std::string(model::name(info.param)); });

}  // namespace
}  // namespace dex::train::testing
