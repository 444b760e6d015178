#include "worker/model/dex_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/unit/worker/model/models.h"

namespace dex::model {
namespace {

LambdaOptions paper(int64_t steps) {
  LambdaOptions o;
  o.anneal_steps = steps;
  return o;
}

LambdaOptions cosine(double start, double end) {
  LambdaOptions o;
  o.schedule = Schedule::kSeedCosine;
  o.anneal_steps = 100;
  o.start = start;
  o.end = end;
  return o;
}

// method.md §10 item 5, §2.2.
TEST(LambdaTest, InitByDepth) {
  const std::vector<std::pair<int64_t, double>> table{{0, 0.2},       {1, 0.355509}, {2, 0.470713},
                                                      {3, 0.556058},  {4, 0.619283}, {5, 0.666122},
                                                      {11, 0.777870}, {29, 0.799900}};
  for (const auto& [layer, value] : table) EXPECT_NEAR(lambda_init(layer), value, 5e-7) << layer;
  EXPECT_EQ(lambda_init(0), 0.8 - 0.6);
}

// The table of method.md §2.2.
TEST(LambdaTest, PaperSchedule) {
  const std::vector<int64_t> times{0, 25, 50, 75, 99, 100, 200};
  const std::vector<std::tuple<int64_t, double, std::vector<double>>> table{
      {0, 0, {0, 0.037500, 0.050000, 0.037500, 0.001980, 0, 0}},
      {0, 0.04, {0, 0.047500, 0.070000, 0.067500, 0.041580, 0.04, 0.04}},
      {1, 0.04, {0, 0.076658, 0.108877, 0.096658, 0.043120, 0.04, 0.04}},
      {29, 0.04, {0, 0.159981, 0.219975, 0.179981, 0.047519, 0.04, 0.04}}};
  for (const auto& [layer, learned, values] : table) {
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_NEAR(lambda_at(paper(100), layer, times[i], learned), values[i], 1e-6)
          << layer << " at " << times[i];
    }
  }
  EXPECT_EQ(lambda_at(paper(100), 7, 0, 123.0), 0);  // exactly: step 0 is the base
  EXPECT_EQ(lambda_at(paper(0), 7, 0, 0.3), 0.3);    // T = 0: λ_learn at once
}

TEST(LambdaTest, LearnedFactorIsAlpha) {
  EXPECT_EQ(lambda_terms(paper(100), 3, 25).learned, 0.25);
  EXPECT_EQ(lambda_terms(paper(100), 3, 250).learned, 1.0);
  EXPECT_EQ(lambda_terms(paper(100), 3, 250).fixed, 0.0);
  EXPECT_EQ(lambda_terms(cosine(0.1, 0.5), 3, 50).learned, 0.0);
}

TEST(LambdaTest, PaperScheduleWithAConstantInit) {
  LambdaOptions o = paper(100);
  o.init = 0.5;
  EXPECT_NEAR(lambda_at(o, 9, 50, 0), 0.125, 1e-12);
}

// method.md §3.3.
TEST(LambdaTest, SeedCosine) {
  const std::vector<int64_t> times{0, 25, 50, 75, 100, 200};
  const std::vector<std::pair<LambdaOptions, std::vector<double>>> table{
      {cosine(0.1, 0.5), {0.1, 0.158579, 0.3, 0.441421, 0.5, 0.5}},
      {cosine(0.05, 0.3), {0.05, 0.086612, 0.175, 0.263388, 0.3, 0.3}},
      {cosine(0.1, 0.65), {0.1, 0.180546, 0.375, 0.569454, 0.65, 0.65}}};
  for (const auto& [options, values] : table) {
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_NEAR(lambda_at(options, 0, times[i], 9.0), values[i], 1e-6) << times[i];
    }
    EXPECT_EQ(lambda_at(options, 0, 0, 0), options.start);
    EXPECT_EQ(lambda_at(options, 0, 100, 0), options.end);
  }
}

// method.md §3.3: c whatever t, and λ_learn from the first update on.
TEST(LambdaTest, ConstantAndLearned) {
  LambdaOptions o;
  o.schedule = Schedule::kConstant;
  o.anneal_steps = 100;
  o.value = 0.25;
  for (const int64_t t : {0, 50, 100, 1000}) EXPECT_EQ(lambda_at(o, 3, t, 9.0), 0.25);
  EXPECT_EQ(lambda_terms(o, 3, 50).learned, 0);
  o.schedule = Schedule::kLearned;
  for (const int64_t t : {0, 50, 1000}) EXPECT_EQ(lambda_at(o, 3, t, 0.07), 0.07);
}

TEST(OptionNamesTest, ReadWhatTheyWrite) {
  for (const auto value :
       {Form::kNone, Form::kPaper, Form::kHeadMean, Form::kPrefixMean, Form::kUniformMap})
    EXPECT_EQ(parse_form(name(value)), value);
  for (const auto value :
       {Projection::kShared, Projection::kPerHead, Projection::kDense, Projection::kBottleneck}) {
    EXPECT_EQ(parse_projection(name(value)), value);
  }
  for (const auto value :
       {BottleneckScope::kShared, BottleneckScope::kPerHead, BottleneckScope::kDense}) {
    EXPECT_EQ(parse_bottleneck_scope(name(value)), value);
  }
  for (const auto value : {Activation::kNone, Activation::kSilu, Activation::kGelu})
    EXPECT_EQ(parse_activation(name(value)), value);
  for (const auto value : {Train::kKvoDex, Train::kDexOnly, Train::kKvoOnly, Train::kLoraDex,
                           Train::kFullDex, Train::kLora, Train::kAdapter, Train::kFull}) {
    EXPECT_EQ(parse_train(name(value)), value);
  }
  EXPECT_EQ(name(Train::kKvoDex), "kvo+dex");
  try {
    parse_form("sequence_mean");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[options] form must be one of none, paper, head_mean, prefix_mean, uniform_map, got "
              "\"sequence_mean\"");
  }
}

// api.md §3: what is trained decides, and a map over all heads together.
TEST(ArtifactClassTest, IsTheSizeOfWhatIsPublished) {
  const Config config = testing::tiny_config();
  const auto of = [&](Train train, Projection projection, BottleneckScope scope) {
    DexOptions options;
    options.train = train;
    options.form = parts_of(train).branch ? Form::kPaper : Form::kNone;
    options.projection = projection;
    options.bottleneck_scope = scope;
    return artifact_class(options, config);
  };
  for (const auto train : {Train::kDexOnly, Train::kLoraDex}) {
    EXPECT_EQ(of(train, Projection::kShared, BottleneckScope::kDense), "LIGHT");
    EXPECT_EQ(of(train, Projection::kBottleneck, BottleneckScope::kPerHead), "LIGHT");
    EXPECT_EQ(of(train, Projection::kBottleneck, BottleneckScope::kDense), "KVO");
    EXPECT_EQ(of(train, Projection::kDense, BottleneckScope::kShared), "KVO");
  }
  for (const auto train : {Train::kLora, Train::kAdapter})  // no branch, whatever its projection
    EXPECT_EQ(of(train, Projection::kDense, BottleneckScope::kShared), "LIGHT");
  for (const auto train : {Train::kKvoDex, Train::kKvoOnly})
    EXPECT_EQ(of(train, Projection::kShared, BottleneckScope::kShared), "KVO");
  for (const auto train : {Train::kFull, Train::kFullDex})
    EXPECT_EQ(of(train, Projection::kDense, BottleneckScope::kShared), "MODEL");
}

// method.md §3.6, §8.4. Method full has nothing to fold, which is no reason against it.
TEST(NotFoldableTest, ASecondMapIsNotPlainWeights) {
  DexOptions options;
  options.form = Form::kNone;
  for (const auto train : {Train::kDiffAttention, Train::kDiffAll}) {
    options.train = train;
    EXPECT_EQ(
        not_foldable(options),
        "method diff keeps a second attention map; it can't be folded, serve it as a base model");
  }
  for (const auto train : {Train::kFull, Train::kLora, Train::kKvoOnly}) {
    options.train = train;
    EXPECT_EQ(not_foldable(options), "");
  }
}

class ProblemsTest : public ::testing::Test {
 protected:
  Config config = testing::tiny_config();
  std::vector<std::vector<int64_t>> heads = testing::some_heads(config);
  DexOptions options;

  void SetUp() override { options.lambda.anneal_steps = 50; }
  std::string all(int64_t updates = 100) {
    std::string text;
    for (const auto& problem : problems(options, config, heads, updates)) text += problem + "; ";
    return text;
  }
};

TEST_F(ProblemsTest, TheDefaultsAreFine) {
  EXPECT_EQ(all(), "");
}

// method.md §2.5.
TEST_F(ProblemsTest, DeadPointsAreRefused) {
  options.lambda.anneal_steps = 1;
  EXPECT_NE(all().find("branch can't start: give anneal_steps ≥ 2, lambda_learn_init ≠ 0 or "
                       "w_d_init = linear"),
            std::string::npos);
  options.w_d_init = BranchInit::kLinear;
  EXPECT_EQ(all(), "");
  options.form = Form::kUniformMap;  // has gates only, which start at 0
  EXPECT_NE(all().find("give anneal_steps ≥ 2 or lambda_learn_init ≠ 0 (anneal_steps is 1"),
            std::string::npos)
      << all();
  options.form = Form::kPaper;
  options.w_d_init = BranchInit::kZeros;
  options.lambda.learn_init = 0.1;
  EXPECT_EQ(all(), "");
  options.lambda.learn_init = 0;
  options.lambda.anneal_steps = 50;
  EXPECT_NE(all(1).find("branch can't start"),
            std::string::npos);  // t = 0 is the only step visited
  options.lambda.init = 0;       // a bump of no height
  EXPECT_NE(all().find("branch can't start: give lambda_init ≠ 0"), std::string::npos);
  options.lambda = cosine(0, 0);
  EXPECT_NE(all().find("lambda is 0 for the whole job: give start or end ≠ 0"), std::string::npos);
  options.lambda = cosine(0.3, 0);
  EXPECT_EQ(all(), "");
  options.lambda.anneal_steps = 0;  // its end at once
  EXPECT_NE(all().find("lambda is 0 for the whole job: give end ≠ 0"), std::string::npos);
  options.lambda = cosine(0, 0.3);
  options.lambda.anneal_steps = 1;
  EXPECT_NE(all(1).find("lambda is 0 for the whole job: give start ≠ 0"), std::string::npos);
  options.lambda.schedule = Schedule::kConstant;
  EXPECT_NE(all().find("lambda is 0 for the whole job"), std::string::npos);
  options.lambda.schedule = Schedule::kLearned;
  EXPECT_NE(all().find("branch can't start"), std::string::npos);
  options.projection = Projection::kBottleneck;  // its start is D = 0 whatever w_d_init says
  options.w_d_init = BranchInit::kLinear;
  EXPECT_NE(all().find("branch can't start"), std::string::npos);
}

TEST_F(ProblemsTest, BadNumbersAndHeadsAreNamed) {
  options.lambda.anneal_steps = -5;
  EXPECT_NE(all().find("anneal_steps must be ≥ 0, got -5"), std::string::npos);
  EXPECT_NE(all(0).find("updates must be ≥ 1, got 0"), std::string::npos);
  options.lambda.anneal_steps = 50;
  options.lambda.learn_init = std::nan("");
  EXPECT_NE(all().find("learn_init must be finite"), std::string::npos);
  options.lambda.learn_init = 0;
  heads[1] = {0, 40, 0};
  EXPECT_NE(all().find("layer 1: head 40 of 4"), std::string::npos);
  EXPECT_NE(all().find("layer 1: head 0 twice"), std::string::npos);
  heads.pop_back();
  EXPECT_NE(all().find("must list 3 layers, got 2"), std::string::npos);
}

TEST_F(ProblemsTest, TheFirstLayerIsOneOfTheModelsAndHeadsLieAboveIt) {
  options.first_layer = 3;
  EXPECT_EQ(all(), "first_layer must be between 0 and 2, the model's last layer, got 3; ");
  options.first_layer = 1;
  EXPECT_EQ(all(), "layer 0: heads are selected below first_layer 1; ");
  heads[0].clear();
  EXPECT_EQ(all(), "");
  options.train = Train::kFullDex;
  EXPECT_EQ(all(),
            "first_layer 1 has no meaning with train full+dex, which publishes a whole model: "
            "leave it out; ");
}

// method.md §3.3, §3.5: the identity start is the base's logits, the literal one is not.
TEST_F(ProblemsTest, TheStartMustBeWhatItSays) {
  options.lambda = cosine(0.1, 0.5);
  options.w_d_init = BranchInit::kLinear;
  EXPECT_NE(all().find("w_d_init linear with λ ≠ 0 at the first update"), std::string::npos);
  options.start = Start::kLiteral;
  EXPECT_EQ(all(), "");
  options.lambda.start = 0;
  EXPECT_NE(all().find("start literal needs λ ≠ 0 at the first update"), std::string::npos);
  options.start = Start::kIdentity;
  EXPECT_EQ(all(), "");
  options.lambda.schedule = Schedule::kLearned;
  options.lambda.learn_init = 0.1;
  EXPECT_NE(all().find("w_d_init linear"), std::string::npos);
  options.lambda.learn_init = 0;
  EXPECT_EQ(all(), "");
}

// method.md §3.6: above a tenth of the base only on request.
TEST_F(ProblemsTest, ALargeBranchNeedsPermission) {
  options.projection = Projection::kDense;  // 3·24² + 3 of the tiny model's 10,720 parameters
  EXPECT_NE(all().find("a branch of 1731 parameters is"), std::string::npos) << all();
  EXPECT_NE(all().find("above 10 % it needs allow_large_projection"), std::string::npos);
  options.allow_large_projection = true;
  EXPECT_EQ(all(), "");
}

TEST_F(ProblemsTest, WidthsThatLeaveNothingAndFloorsOutOfRange) {
  options.projection = Projection::kBottleneck;
  options.width_ratio = 0.05;
  EXPECT_NE(all().find("width_ratio 0.05 of head_dim 6 leaves no column"), std::string::npos)
      << all();
  options.bottleneck_scope = BottleneckScope::kDense;
  EXPECT_EQ(all(), "");  // of 24 it leaves one
  options.width_ratio = 20;
  EXPECT_NE(all().find("width_ratio must be above 0 and at most 16"), std::string::npos);
  options.width_ratio = 0.5;
  options.soft_floor = 0.6;
  EXPECT_NE(all().find("soft_floor must be between 0 and 0.5, got 0.6"), std::string::npos);
}

TEST_F(ProblemsTest, FormAndTrainMustFit) {
  options.train = Train::kKvoOnly;
  EXPECT_NE(all().find("kvo_only has no branch"), std::string::npos);
  options.form = Form::kNone;
  EXPECT_EQ(all(), "");
  options.train = Train::kDexOnly;
  EXPECT_NE(all().find("needs a form"), std::string::npos);
  options.form = Form::kPaper;
  heads.assign(3, {});
  EXPECT_NE(all().find("at least one selected head"), std::string::npos);
  options.soft_floor = 0.2;  // then the branch acts on the others
  EXPECT_EQ(all(), "");
}

}  // namespace
}  // namespace dex::model
