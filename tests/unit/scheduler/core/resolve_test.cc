#include "scheduler/core/resolve.h"

#include <gmock/gmock.h>

#include <limits>

#include "scheduler/core/presets.h"
#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::Contains;
using testing::HasSubstr;
using v1::DexMethod;
using v1::HeadSelection;
using v1::Lambda;

TEST(ResolveTest, NamesEveryValueAndItsSource) {
  auto in = input();
  in.spec.mutable_hyperparameters()->set_learning_rate(2e-4);
  const auto config = resolved(in).config;
  EXPECT_EQ(config.preset_version(), "code@1");
  EXPECT_EQ(config.spec().hyperparameters().learning_rate(), 2e-4);
  EXPECT_EQ(config.spec().dex().head_selection().tau(), 1.8);
  EXPECT_EQ(config.sources().at("hyperparameters.learning_rate"), "USER");
  EXPECT_EQ(config.sources().at("dex.head_selection.tau"), "PRESET (brief)");
  EXPECT_EQ(config.sources().at("checkpoints.keep_last"), "DEFAULT (ours)");
  EXPECT_EQ(config.sources().at("seed"), "AUTO");
  EXPECT_EQ(config.spec().seed(), 7);
}

// method.md §7: each method has its own options and rate; nothing of a preset's branch is left.
TEST(ResolveTest, MethodsWithoutABranchHaveTheirOwnDefaults) {
  auto in = input();
  in.spec.mutable_lora()->set_alpha(32);
  auto config = resolved(in).config;
  EXPECT_EQ(config.spec().lora().r(), 8);
  EXPECT_EQ(config.spec().lora().alpha(), 32);
  EXPECT_THAT(config.spec().lora().target_modules(),
              testing::ElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  EXPECT_DOUBLE_EQ(config.spec().hyperparameters().learning_rate(), 2e-4);
  EXPECT_FALSE(config.spec().hyperparameters().has_branch_learning_rate());
  EXPECT_EQ(config.sources().at("lora.alpha"), "USER");
  EXPECT_EQ(config.sources().at("lora.r"), "AUTO (brief)");
  EXPECT_EQ(config.spec().hyperparameters().warmup_ratio(), 0.03);

  in.spec.mutable_adapter();
  config = resolved(in).config;
  EXPECT_EQ(config.spec().adapter().size(), 64);
  EXPECT_EQ(config.spec().adapter().placement(), v1::AdapterMethod::PLACEMENT_BOTH);
  EXPECT_DOUBLE_EQ(config.spec().hyperparameters().learning_rate(), 1e-4);

  in.spec.mutable_full();
  EXPECT_DOUBLE_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 2e-5);
  in.spec.mutable_hyperparameters()->set_learning_rate_multiplier(0.5);
  EXPECT_DOUBLE_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 1e-5);
}

TEST(ResolveTest, TheFirstLayerIsOneOfTheModels) {
  auto in = input("paper");
  EXPECT_FALSE(resolved(in).config.spec().hyperparameters().has_first_layer());
  in.spec.mutable_hyperparameters()->set_first_layer(29);
  const auto config = resolved(in).config;
  EXPECT_EQ(config.spec().hyperparameters().first_layer(), 29u);
  EXPECT_EQ(config.sources().at("hyperparameters.first_layer"), "USER");
  in.spec.mutable_hyperparameters()->set_first_layer(30);
  EXPECT_THAT(refused(in).message(),
              HasSubstr("hyperparameters.first_layer must be below 30, the layers of "
                        "smollm2-135m-instruct, got 30"));
  in.spec.mutable_hyperparameters()->set_first_layer(15);
  in.spec.mutable_full();
  EXPECT_THAT(refused(in).message(),
              HasSubstr("hyperparameters.first_layer 15 has no meaning with full"));
}

// method.md §8.4.
TEST(ResolveTest, MethodDiffStartsByTheModelsNorms) {
  auto in = input();
  in.spec.mutable_diff();
  auto spec = resolved(in).config.spec();
  EXPECT_EQ(spec.diff().version(), v1::DiffMethod::VERSION_V2);
  EXPECT_EQ(spec.diff().init(), v1::DiffMethod::INIT_ZERO);
  EXPECT_EQ(spec.diff().mix_in_ratio(), 0.3);
  EXPECT_EQ(spec.diff().train(), v1::DiffMethod::TRAIN_ATTENTION);
  EXPECT_DOUBLE_EQ(spec.hyperparameters().learning_rate(), 1e-4);
  EXPECT_THAT(resolved(in).warnings, Contains(HasSubstr("model_artifact")));

  in.model.set_qk_norm(true);
  in.model.set_family("qwen3");
  EXPECT_EQ(resolved(in).config.spec().diff().init(), v1::DiffMethod::INIT_MIRROR);
  in.spec.mutable_diff()->set_init(v1::DiffMethod::INIT_ZERO);
  EXPECT_THAT(
      refused(in).message(),
      HasSubstr("diff.init ZERO has no usable gradient on a qwen3, which norms its queries"));
  in.spec.mutable_diff()->set_init(v1::DiffMethod::INIT_MIRROR);
  in.spec.mutable_diff()->set_train(v1::DiffMethod::TRAIN_ALL);
  EXPECT_DOUBLE_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 2e-5);
  in.spec.mutable_diff()->set_mix_in_ratio(1.5);
  EXPECT_THAT(refused(in).message(), HasSubstr("diff.mix_in_ratio must be at most 1, got 1.5"));
  in.spec.mutable_diff()->set_mix_in_ratio(0);
  EXPECT_THAT(refused(in).message(), HasSubstr("diff.mix_in_ratio must be a number above 0"));
  in.spec.mutable_diff()->clear_mix_in_ratio();
  in.model.set_differential(true);
  EXPECT_THAT(refused(in).message(), HasSubstr("subtracts attention maps already"));
}

TEST(ResolveTest, LoraBesideABranchTakesLorasRate) {
  auto in = input("paper");
  in.spec.mutable_dex()->set_train(DexMethod::TRAIN_LORA_DEX);
  const auto config = resolved(in).config;
  EXPECT_THAT(config.spec().dex().lora().target_modules(),
              testing::ElementsAre("k_proj", "v_proj", "o_proj"));
  EXPECT_DOUBLE_EQ(config.spec().hyperparameters().learning_rate(), 2e-4);
  EXPECT_DOUBLE_EQ(config.spec().hyperparameters().branch_learning_rate(), 1e-4);
  EXPECT_EQ(config.preset_version(), "paper@1");
}

TEST(ResolveTest, BadOptionsOfAMethodAreNamed) {
  auto in = input();
  in.spec.mutable_lora()->set_r(0);
  in.spec.mutable_lora()->add_target_modules("lm_head");
  in.spec.mutable_lora()->set_dropout(1);
  const auto status = refused(in);
  ASSERT_EQ(status.violations().size(), 3u);
  EXPECT_EQ(status.violations()[0].field, "lora.r");
  EXPECT_EQ(status.violations()[1].field, "lora.dropout");
  EXPECT_THAT(status.violations()[2].description, HasSubstr("\"lm_head\" is not one of q_proj"));
  in.spec.mutable_adapter()->set_size(0);
  EXPECT_EQ(refused(in).violations()[0].field, "adapter.size");
  in = input();
  in.spec.mutable_dex()->mutable_lora()->set_r(4);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  in = input();
  in.spec.mutable_lora();
  in.spec.mutable_hyperparameters()->set_branch_learning_rate(1e-4);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
}

TEST(ResolveTest, AnnealingIsClampedToTheRunAndSaysSo) {
  const auto result = resolved(input());
  EXPECT_EQ(result.config.spec().dex().lambda().anneal_steps(), 180);
  EXPECT_EQ(result.config.sources().at("dex.lambda.anneal_steps"), "CLAMPED");
  EXPECT_THAT(result.warnings, Contains(HasSubstr("anneal_steps 3000 > 180 updates: using 180")));
}

TEST(ResolveTest, PresetValuesThatDoNotApplyAreDropped) {
  auto in = input("small");
  in.spec.mutable_dex()->mutable_lambda()->set_schedule(Lambda::SCHEDULE_PAPER_EQ4);
  in.spec.mutable_dex()->mutable_lambda()->set_anneal_fraction(0.25);
  const auto spec = resolved(in).config.spec();
  EXPECT_FALSE(spec.dex().lambda().has_start());
  EXPECT_EQ(spec.dex().lambda().anneal_case(), Lambda::kAnnealFraction);
}

TEST(ResolveTest, UsersFieldsWithoutEffectAreRefusedByName) {
  auto in = input("small");
  in.spec.mutable_dex()->mutable_lambda()->set_learn_init(0.1);
  in.spec.mutable_dex()->mutable_head_selection()->set_fraction(0.25);
  const auto status = refused(in);
  EXPECT_EQ(status.reason(), "UNUSED_FIELD");
  ASSERT_EQ(status.violations().size(), 2u);
  EXPECT_EQ(status.violations()[0].field, "dex.lambda.learn_init");
  EXPECT_THAT(status.violations()[0].description, HasSubstr("PAPER_EQ4"));
}

TEST(ResolveTest, NoFractionOfTheHeadsIsNoSelection) {
  auto in = input("paper");
  in.spec.mutable_dex()->mutable_head_selection()->set_fraction(0);
  EXPECT_EQ(refused(in).reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_THAT(refused(in).message(),
              HasSubstr("dex.head_selection.fraction must be a number above 0, got 0"));
  in.spec.mutable_dex()->mutable_head_selection()->set_fraction(0.1);
  EXPECT_TRUE(resolve(in).ok());
}

TEST(ResolveTest, EarlyStoppingHasItsDefaultsAndNeedsHeldOutRows) {
  auto in = input();
  EXPECT_FALSE(resolved(in).config.spec().early_stopping().enabled());
  EXPECT_FALSE(resolved(in).config.spec().early_stopping().has_patience());  // without effect
  in.spec.mutable_early_stopping()->set_patience(5);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(), HasSubstr("early_stopping.patience"));
  in.spec.mutable_early_stopping()->set_enabled(true);
  const auto config = resolved(in).config;
  EXPECT_EQ(config.spec().early_stopping().patience(), 5u);
  EXPECT_EQ(config.spec().early_stopping().warmup_evals(), 1u);
  EXPECT_TRUE(config.spec().early_stopping().restore_best());
  EXPECT_EQ(config.sources().at("early_stopping.min_delta"), "DEFAULT (ours)");
  in.spec.set_validation_split(0);
  EXPECT_EQ(refused(in).reason(), "CONFLICTING_FIELDS");
  EXPECT_THAT(refused(in).message(), HasSubstr("early_stopping.enabled needs held-out rows"));
  in.validation = DataFacts{v1::FILE_FORMAT_TEXT, 40, 100'000, 20'000};
  in.spec.clear_validation_split();
  in.spec.set_validation_file("file-2");
  resolved(in);
}

TEST(ResolveTest, AllBadValuesComeAtOnce) {
  auto in = input();
  auto& hyper = *in.spec.mutable_hyperparameters();
  hyper.set_learning_rate(0);
  hyper.set_branch_learning_rate(std::numeric_limits<double>::quiet_NaN());
  hyper.set_batch_size(5000);
  in.spec.set_suffix("a/b");
  const auto status = refused(in);
  EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
  EXPECT_EQ(status.violations().size(), 4u);
  EXPECT_THAT(status.message(), HasSubstr("learning_rate must be a number above 0, got 0"));
  EXPECT_THAT(status.message(), HasSubstr("got nan"));
}

TEST(ResolveTest, SequencesLongerThanTheModelAreRefused) {
  auto in = input();
  in.spec.mutable_hyperparameters()->set_max_seq_length(9000);
  const auto status = refused(in);
  EXPECT_EQ(status.reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_THAT(status.message(), HasSubstr("at most 8192"));
  EXPECT_THAT(status.message(), HasSubstr("got 9000"));
}

TEST(ResolveTest, DeadPointsAreRefused) {
  auto paper = input("paper");
  paper.spec.mutable_hyperparameters()->set_max_steps(2);  // T = 1: the bump is never visited
  EXPECT_EQ(refused(paper).reason(), "DEAD_CONFIGURATION");
  EXPECT_THAT(refused(paper).message(), HasSubstr("anneal_steps ≥ 2"));
  paper.spec.mutable_dex()->mutable_lambda()->set_learn_init(0.1);
  EXPECT_TRUE(resolve(paper).ok());

  auto zero = input("small");
  zero.spec.mutable_dex()->mutable_lambda()->set_start(0);
  zero.spec.mutable_dex()->mutable_lambda()->set_end(0);
  EXPECT_EQ(refused(zero).reason(), "DEAD_CONFIGURATION");
  zero.spec.mutable_dex()->mutable_lambda()->set_start(0.1);
  EXPECT_TRUE(resolve(zero).ok());
  zero.spec.mutable_dex()->mutable_lambda()->set_anneal_steps(0);  // the end, 0, at once
  EXPECT_THAT(refused(zero).message(),
              HasSubstr("lambda is 0 for the whole job: give end ≠ 0, or anneal_steps ≥ 1"));
  zero.spec.mutable_dex()->mutable_lambda()->clear_anneal();
  zero.spec.mutable_dex()->mutable_lambda()->set_start(0);
  zero.spec.mutable_dex()->mutable_lambda()->set_end(0.3);
  zero.spec.mutable_hyperparameters()->set_max_steps(1);  // only the start, 0, is visited
  EXPECT_THAT(refused(zero).message(), HasSubstr("give start ≠ 0, or at least 2 updates"));

  auto flat = input("paper");
  flat.spec.mutable_dex()->mutable_lambda()->set_init(0);  // a bump of no height
  EXPECT_EQ(refused(flat).reason(), "DEAD_CONFIGURATION");
  EXPECT_THAT(refused(flat).message(), HasSubstr("give lambda_init ≠ 0, lambda_learn_init ≠ 0"));
  flat.spec.mutable_dex()->set_w_d_init(DexMethod::BRANCH_INIT_LINEAR);
  EXPECT_TRUE(resolve(flat).ok());

  auto empty = input("small");
  empty.spec.mutable_dex()->set_train(DexMethod::TRAIN_DEX_ONLY);
  empty.spec.mutable_dex()->mutable_head_selection()->set_criterion(
      HeadSelection::CRITERION_EXPLICIT);
  EXPECT_EQ(refused(empty).reason(), "DEAD_CONFIGURATION");
}

// method.md §3.6: no form is defined on a difference of maps; the rivals are.
TEST(ResolveTest, DifferentialModelsTakeNoDex) {
  auto in = input();
  in.model.set_family("diffllama");
  in.model.set_differential(true);
  const auto status = refused(in);
  EXPECT_THAT(status.message(),
              HasSubstr("dex has no defined meaning on a diffllama, which subtracts attention maps "
                        "by itself: use kvo_only, lora, adapter or full"));
  in.spec.mutable_kvo_only();
  EXPECT_TRUE(resolve(in).ok());
}

// A bottleneck starts at 0 whatever w_d_init says (method.md §2.5), so that cannot save it.
TEST(ResolveTest, ABottleneckHasNoLinearStart) {
  auto in = input("paper");
  in.spec.mutable_hyperparameters()->set_max_steps(2);
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_BOTTLENECK);
  EXPECT_EQ(refused(in).reason(), "DEAD_CONFIGURATION");
  in.spec.mutable_dex()->set_w_d_init(DexMethod::BRANCH_INIT_LINEAR);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  in.spec.mutable_dex()->clear_w_d_init();
  in.spec.mutable_hyperparameters()->set_max_steps(180);
  in.spec.mutable_dex()->mutable_bottleneck()->set_width_ratio(0.01);
  EXPECT_TRUE(resolve(in).ok());  // 0.64 of a column is one
  in.model.set_head_dim(32);
  EXPECT_THAT(refused(in).message(), HasSubstr("width_ratio 0.01 of head_dim 32"));
}

TEST(ResolveTest, NumbersThatAnEnumDoesNotHaveAreRefused) {
  auto in = input();
  in.spec.mutable_dex()->set_sign(static_cast<DexMethod::Sign>(7));
  in.spec.mutable_hyperparameters()->set_truncation(v1::Hyperparameters::TRUNCATION_UNSPECIFIED);
  const auto status = refused(in);
  EXPECT_EQ(status.reason(), "INVALID_FIELD");
  ASSERT_EQ(status.violations().size(), 2u);
  EXPECT_EQ(status.violations()[0].field, "dex.sign");
  EXPECT_THAT(status.message(), HasSubstr("must be one of SIGN_MINUS, SIGN_PLUS, got 7"));
}

TEST(ResolveTest, AMultiplierMakesTheRatesTheUsersAndIsGone) {
  auto in = input("paper");
  in.spec.mutable_hyperparameters()->set_learning_rate_multiplier(2);
  const auto config = resolved(in).config;
  EXPECT_DOUBLE_EQ(config.spec().hyperparameters().learning_rate(), 2e-4);
  EXPECT_EQ(config.sources().at("hyperparameters.learning_rate"), "USER");
  EXPECT_FALSE(config.spec().hyperparameters().has_learning_rate_multiplier());
  EXPECT_FALSE(config.sources().contains("hyperparameters.learning_rate_multiplier"));
}

TEST(ResolveTest, BadHeadListsNameLayerAndHead) {
  auto in = input("paper");
  auto& heads = *in.spec.mutable_dex()->mutable_head_selection();
  heads.set_criterion(HeadSelection::CRITERION_EXPLICIT);
  auto* entry = heads.add_heads();
  entry->set_layer(7);
  entry->add_heads(40);
  EXPECT_THAT(refused(in).message(), HasSubstr("layer 7: head 40 of 9"));
}

// method.md §3.1: `dense` is a name for paper + dense + plus, and so is a mean over a dense map.
TEST(ResolveTest, DenseIsResolvedAndTheEffectiveSpecSaysSo) {
  for (const bool mean : {false, true}) {
    auto in = input("small");
    auto& dex = *in.spec.mutable_dex();
    if (mean) {
      dex.set_projection(DexMethod::PROJECTION_DENSE);  // the preset's form is HEAD_MEAN
    } else {
      dex.set_form(DexMethod::FORM_DENSE);
    }
    const auto result = resolved(in);
    const auto& found = result.config.spec().dex();
    EXPECT_EQ(found.form(), DexMethod::FORM_PAPER);
    EXPECT_EQ(found.projection(), DexMethod::PROJECTION_DENSE);
    EXPECT_EQ(found.sign(), DexMethod::SIGN_PLUS);
    EXPECT_EQ(result.config.sources().at("dex.form"), "AUTO");
    EXPECT_THAT(result.warnings, Contains(HasSubstr("is form PAPER, projection DENSE, sign PLUS")));
  }
  auto in = input("small");
  in.spec.mutable_dex()->set_form(DexMethod::FORM_DENSE);
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_SHARED);
  in.spec.mutable_dex()->set_sign(DexMethod::SIGN_MINUS);
  EXPECT_EQ(refused(in).reason(), "CONFLICTING_FIELDS");
  EXPECT_EQ(refused(in).violations().size(), 2u);
}

TEST(ResolveTest, AChosenFormBringsItsSign) {
  auto in = input("paper");
  in.spec.mutable_dex()->set_form(DexMethod::FORM_PREFIX_MEAN);
  EXPECT_EQ(resolved(in).config.spec().dex().sign(), DexMethod::SIGN_PLUS);
  EXPECT_EQ(resolved(in).config.sources().at("dex.sign"), "AUTO");
  in.spec.mutable_dex()->set_sign(DexMethod::SIGN_MINUS);
  EXPECT_EQ(resolved(in).config.spec().dex().sign(), DexMethod::SIGN_MINUS);
  in = input("small");
  in.spec.mutable_dex()->set_form(DexMethod::FORM_UNIFORM_MAP);
  const auto uniform = resolved(in).config.spec().dex();
  EXPECT_EQ(uniform.sign(), DexMethod::SIGN_MINUS);
  EXPECT_FALSE(uniform.has_projection());  // it has none, and no w_d to start
  EXPECT_FALSE(uniform.has_w_d_init());
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_SHARED);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(), HasSubstr("UNIFORM_MAP, which has no projection"));
}

TEST(ResolveTest, SchedulesConstantAndLearned) {
  auto in = input("small");
  auto& lambda = *in.spec.mutable_dex()->mutable_lambda();
  lambda.set_schedule(Lambda::SCHEDULE_CONSTANT);
  EXPECT_EQ(refused(in).reason(), "MISSING_FIELD");
  lambda.set_value(0.2);
  const auto constant = resolved(in).config.spec();
  EXPECT_EQ(constant.dex().lambda().anneal_case(), Lambda::ANNEAL_NOT_SET);
  EXPECT_FALSE(constant.dex().lambda().has_start());
  EXPECT_FALSE(constant.hyperparameters().has_lambda_learning_rate());
  lambda.set_value(0);
  EXPECT_THAT(refused(in).message(), HasSubstr("lambda is 0 for the whole job"));
  lambda.clear_value();
  lambda.set_schedule(Lambda::SCHEDULE_LEARNED);
  EXPECT_THAT(refused(in).message(), HasSubstr("branch can't start: give lambda_learn_init ≠ 0"));
  lambda.set_learn_init(0.1);
  EXPECT_EQ(resolved(in).config.spec().hyperparameters().lambda_learning_rate(), 1e-4);
  lambda.set_anneal_steps(5);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
}

// method.md §3.5.
TEST(ResolveTest, ALiteralStartIsLinearAndNeedsLambda) {
  auto in = input("small");
  in.spec.mutable_dex()->set_start(DexMethod::START_LITERAL);
  EXPECT_EQ(resolved(in).config.spec().dex().w_d_init(), DexMethod::BRANCH_INIT_LINEAR);
  in.spec.mutable_dex()->set_w_d_init(DexMethod::BRANCH_INIT_ZEROS);
  EXPECT_EQ(refused(in).violations().at(0).field, "dex.w_d_init");
  auto paper = input("paper");
  paper.spec.mutable_dex()->set_start(DexMethod::START_LITERAL);
  EXPECT_THAT(refused(paper).message(), HasSubstr("LITERAL needs λ ≠ 0 at the first update"));
  auto linear = input("small");
  linear.spec.mutable_dex()->set_w_d_init(DexMethod::BRANCH_INIT_LINEAR);
  EXPECT_THAT(refused(linear).message(), HasSubstr("would change the model before it"));
}

// method.md §3.6, on SmolLM2: dense 7.4 %, a bottleneck of 1.5·H·d 22.2 %.
TEST(ResolveTest, LargeProjectionsNeedPermission) {
  auto in = input("paper");
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_DENSE);
  EXPECT_TRUE(resolve(in).ok());
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_BOTTLENECK);
  auto& bottleneck = *in.spec.mutable_dex()->mutable_bottleneck();
  bottleneck.set_scope(DexMethod::Bottleneck::SCOPE_DENSE);
  EXPECT_THAT(refused(in).message(),
              HasSubstr("22.2 % of the base; above 10 % it needs allow_large_projection"));
  in.spec.mutable_dex()->set_allow_large_projection(true);
  EXPECT_TRUE(resolve(in).ok());
  bottleneck.set_scope(DexMethod::Bottleneck::SCOPE_SHARED);
  bottleneck.set_width_ratio(0.01);
  EXPECT_TRUE(resolve(in).ok());  // one column of 0.64
  in.model.set_head_dim(32);
  EXPECT_THAT(refused(in).message(), HasSubstr("0.01 of head_dim 32 leaves no column"));
}

// A preset's bottleneck does not outlive its projection: the trainer would take it for the user's.
TEST(ResolveTest, AnotherProjectionLeavesNoBottleneck) {
  auto in = input("multilingual");
  EXPECT_TRUE(resolved(in).config.spec().dex().has_bottleneck());
  EXPECT_FALSE(resolved(in).config.spec().dex().has_w_d_init());
  in.spec.mutable_dex()->set_projection(DexMethod::PROJECTION_PER_HEAD);
  EXPECT_FALSE(resolved(in).config.spec().dex().has_bottleneck());
}

TEST(ResolveTest, AutomaticValuesFollowTheData) {
  ResolveInput in = input();
  in.spec.mutable_hyperparameters()->clear_max_steps();
  const auto spec = resolved(in).config.spec();
  EXPECT_EQ(spec.hyperparameters().max_seq_length(), 1024u);
  EXPECT_EQ(spec.hyperparameters().truncation(), v1::Hyperparameters::TRUNCATION_CHUNK);
  EXPECT_TRUE(spec.hyperparameters().train_on_inputs());
  EXPECT_EQ(spec.hyperparameters().batch_size(), 4u);  // 928 packs: 232 updates of 4
  EXPECT_EQ(spec.hyperparameters().micro_batch_size(), 1u);
  EXPECT_DOUBLE_EQ(spec.validation_split(), 0.05);

  in.training.format = v1::FILE_FORMAT_CHAT;
  in.validation = DataFacts{v1::FILE_FORMAT_CHAT, 50, 10'000, 400};
  const auto chat = resolved(in).config.spec();
  EXPECT_EQ(chat.hyperparameters().truncation(), v1::Hyperparameters::TRUNCATION_RIGHT);
  EXPECT_FALSE(chat.hyperparameters().train_on_inputs());
  EXPECT_FALSE(chat.has_validation_split());
}

TEST(ResolveTest, KvoOnlyHasNoBranchFields) {
  auto in = input();
  in.spec.mutable_kvo_only();
  const auto result = resolved(in);
  EXPECT_TRUE(result.config.spec().has_kvo_only());
  EXPECT_EQ(result.config.spec().hyperparameters().learning_rate(), 5e-5);
  EXPECT_TRUE(result.warnings.empty());
  in.spec.mutable_hyperparameters()->set_branch_learning_rate(1e-4);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
}

// method.md §2.7: the control of a preset is its training without the branch.
TEST(ResolveTest, KvoOnlyTakesTheRatesThatDexHasWithThePreset) {
  for (const auto name : preset_names()) {
    auto control = input(name);
    const auto dex = resolved(control).config.spec();
    control.spec.mutable_kvo_only()->set_preset(std::string(name));
    const auto result = resolved(control);
    const auto& hyper = result.config.spec().hyperparameters();
    EXPECT_EQ(hyper.learning_rate(), dex.hyperparameters().learning_rate()) << name;
    EXPECT_EQ(hyper.truncation(), dex.hyperparameters().truncation()) << name;
    EXPECT_EQ(hyper.max_seq_length(), dex.hyperparameters().max_seq_length()) << name;
    EXPECT_FALSE(hyper.has_branch_learning_rate());
    EXPECT_FALSE(hyper.has_lambda_learning_rate());
    EXPECT_EQ(result.config.preset_version(), preset(name, SizeClass::kSmall)->version());
    EXPECT_THAT(result.config.sources().at("hyperparameters.learning_rate"), HasSubstr("PRESET"));
    EXPECT_EQ(result.config.sources().at("kvo_only.preset"), "USER");
  }
  auto in = input();
  in.spec.mutable_kvo_only()->set_preset("paper");
  EXPECT_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 1e-4);
  in.spec.mutable_kvo_only()->set_preset("auto");
  EXPECT_EQ(resolved(in).config.spec().kvo_only().preset(), "small");
  EXPECT_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 5e-5);
  in.spec.mutable_kvo_only()->set_preset("poetry");
  EXPECT_EQ(refused(in).reason(), "UNKNOWN_PRESET");
  EXPECT_EQ(refused(in).violations().at(0).field, "kvo_only.preset");
}

TEST(ResolveTest, ResolvingTheEffectiveSpecAgainChangesNothing) {
  auto dense = input("small"), literal = input("small"), uniform = input("multilingual");
  dense.spec.mutable_dex()->set_form(DexMethod::FORM_DENSE);
  literal.spec.mutable_dex()->set_start(DexMethod::START_LITERAL);
  uniform.spec.mutable_dex()->set_form(DexMethod::FORM_UNIFORM_MAP);
  for (const auto& in : {input(), dense, literal, uniform, input("multilingual")}) {
    const auto first = resolved(in);
    auto again = in;
    again.spec = first.config.spec();
    EXPECT_EQ(resolved(again).config.spec().SerializeAsString(),
              first.config.spec().SerializeAsString());
  }
}

}  // namespace
}  // namespace dex::core
