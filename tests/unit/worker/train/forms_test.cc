// Every option of method.md §3 as a job: it trains from the base's loss, publishes an adapter, and
// what serving would load has the loss that the job published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/held_out_rows.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;

struct Option {
  std::string name;
  std::function<void(JobSpec&)> set;
};

std::vector<Option> options() {
  using model::Activation, model::BottleneckScope, model::Form, model::Projection, model::Schedule;
  const auto bottleneck = [](JobSpec& s, BottleneckScope scope, Activation activation) {
    s.dex.projection = Projection::kBottleneck;
    s.dex.bottleneck_scope = scope;
    s.dex.bottleneck_activation = activation;
    s.dex.allow_large_projection = true;
  };
  return {
      {"prefix_mean",
       [](JobSpec& s) {
         s.dex.form = Form::kPrefixMean;
         s.dex.sign = model::Sign::kPlus;
       }},
      {"prefix_mean_dense",
       [](JobSpec& s) {
         s.dex.form = Form::kPrefixMean;
         s.dex.projection = Projection::kDense;
         s.dex.allow_large_projection = true;
       }},
      {"uniform_map", [](JobSpec& s) { s.dex.form = Form::kUniformMap; }},
      {"dense",
       [](JobSpec& s) {
         s.dex.projection = Projection::kDense;
         s.dex.allow_large_projection = true;
       }},
      {"bottleneck_shared_silu",
       [=](JobSpec& s) { bottleneck(s, BottleneckScope::kShared, Activation::kSilu); }},
      {"bottleneck_per_head_gelu",
       [=](JobSpec& s) { bottleneck(s, BottleneckScope::kPerHead, Activation::kGelu); }},
      {"bottleneck_dense_none",
       [=](JobSpec& s) { bottleneck(s, BottleneckScope::kDense, Activation::kNone); }},
      {"constant",
       [](JobSpec& s) {
         s.dex.lambda.schedule = Schedule::kConstant;
         s.dex.lambda.value = 0.3;
       }},
      {"learned",
       [](JobSpec& s) {
         s.dex.lambda.schedule = Schedule::kLearned;
         s.dex.lambda.learn_init = 0.2;
       }},
      {"soft_floor", [](JobSpec& s) { s.dex.soft_floor = 0.25; }},
      {"every_head", [](JobSpec& s) { s.heads.criterion = evaluate::Criterion::kAll; }},
  };
}

class FormsTest : public JobTest, public ::testing::WithParamInterface<Option> {
 protected:
  FormsTest()
      : config(model::load_config(directory_ / "model")),
        weights(model::load_weights(directory_ / "model", config, {.dtype = at::kFloat})),
        llama(config, weights) {}

  double loss(const model::Adaptation& adaptation) {
    return loss_on_held_out_rows(llama, adaptation);
  }
  model::Adapter published(const Published& out) {
    return model::load_adapter(out.path,
                               {config, model::base_weights_sha256(directory_ / "model")});
  }

  model::Config config;
  model::Weights weights;
  model::Llama llama;
};

TEST_P(FormsTest, TrainsPublishesAndReadsBack) {
  for (const auto train : {model::Train::kKvoDex, model::Train::kDexOnly, model::Train::kLoraDex}) {
    JobSpec spec = this->spec("attempt-" + std::string(model::name(train)));
    spec.dex.train = train;
    GetParam().set(spec);
    RecordingSession session;
    const Published out = run(spec, session);
    EXPECT_EQ(out.base_valid_loss, loss({}));  // step 0 is the base, bit for bit
    EXPECT_NE(*out.valid_loss, *out.base_valid_loss);
    const auto adapter = published(out);
    EXPECT_EQ(adapter.adaptation.options.form, spec.dex.form);
    EXPECT_EQ(adapter.adaptation.options.soft_floor, spec.dex.soft_floor);
    EXPECT_NEAR(loss(adapter.adaptation), *out.valid_loss, 1e-5);
    // What can't be folded has no certificate of folding, and the event says why.
    const auto exported = session.data("export_complete").at(0);
    EXPECT_EQ(exported.contains("maxAbsLogitDiff"), model::not_foldable(spec.dex).empty());
    EXPECT_NE(out.branch_effect.verdict, evaluate::BranchEffect::Verdict::kNotApplicable);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, FormsTest, ::testing::ValuesIn(options()),
                         [](const auto& info) { return info.param.name; });

// Two halves of a job give the whole, sums and floors included.
TEST_P(FormsTest, AResumedJobContinuesTheSame) {
  JobSpec whole = this->spec("whole");
  GetParam().set(whole);
  whole.checkpoints.every_steps = 3;
  RecordingSession session;
  const Published expected = run(whole, session);
  JobSpec second = whole;
  second.attempt_dir = directory_ / "second";
  second.attempt = 2;
  second.checkpoint_dir = whole.attempt_dir / "step-3";
  RecordingSession resumed;
  const Published found = run(second, resumed);
  EXPECT_EQ(found.valid_loss, expected.valid_loss);
}

// method.md §3.5: the job says what the start costs, and is compared with the base all the same.
TEST_F(JobTest, ALiteralStartIsMeasuredAgainstTheBase) {
  for (const auto form :
       {model::Form::kPaper, model::Form::kPrefixMean, model::Form::kUniformMap}) {
    JobSpec spec = this->spec("literal-" + std::string(model::name(form)));
    spec.dex.form = form;
    spec.dex.start = model::Start::kLiteral;
    spec.dex.lambda.schedule = model::Schedule::kSeedCosine;
    spec.dex.lambda.start = 0.3;
    spec.dex.lambda.end = 0.5;
    RecordingSession session;
    const Published out = run(spec, session);
    EXPECT_TRUE(session.has_advice("start_not_identity"));
    const auto first = session.data("eval_complete").at(0);
    EXPECT_EQ(first.at("step"), 0);
    EXPECT_NE(first.at("validLoss").get<double>(), *out.base_valid_loss);

    JobSpec base = this->spec("identity-" + std::string(model::name(form)));
    RecordingSession other;
    EXPECT_EQ(run(base, other).base_valid_loss, out.base_valid_loss);
    EXPECT_FALSE(other.has_advice("start_not_identity"));
  }
}

TEST_F(JobTest, ALargeBranchAndAWrongStartAreRefused) {
  JobSpec dense = spec();
  dense.dex.projection = model::Projection::kDense;
  EXPECT_THAT(failure_of(dense).what(), HasSubstr("above 10 % it needs allow_large_projection"));
  JobSpec literal = spec();
  literal.dex.start = model::Start::kLiteral;  // λ(0) = 0 by Eq. 4
  EXPECT_THAT(failure_of(literal).what(), HasSubstr("start literal needs λ ≠ 0"));
  JobSpec empty = spec();
  empty.dex.train = model::Train::kDexOnly;
  empty.heads.criterion = evaluate::Criterion::kExplicit;
  empty.heads.heads = {{}, {}};
  EXPECT_THAT(failure_of(empty).what(), HasSubstr("at least one selected head"));
  // By threshold: with the share, and thresholds that would select some.
  empty.heads = {};
  empty.heads.criterion = evaluate::Criterion::kThreshold;
  empty.heads.tau = 1000;
  const Failure none = failure_of(empty);
  EXPECT_EQ(none.exit(), Exit::kBadSpec);
  EXPECT_THAT(none.what(), HasSubstr("train DEX_ONLY would train nothing: 0 % of the heads are "
                                     "selected by tau 1000, eta 0. Try: "));
}

}  // namespace
}  // namespace dex::train::testing
