#include "scheduler/core/presets.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>

namespace dex::core {
namespace {

using testing::HasSubstr;
using v1::DexMethod;
using v1::HeadSelection;
using v1::Lambda;

v1::Preset get(std::string_view name, SizeClass size = SizeClass::kSmall) {
  auto result = preset(name, size);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.value();
}

TEST(PresetTest, SizeClassesFollowNominalSizes) {
  EXPECT_EQ(size_class(134'515'008), SizeClass::kSmall);
  EXPECT_EQ(size_class(1'000'000'000), SizeClass::kMedium);
  EXPECT_EQ(size_class(3'212'749'824), SizeClass::kMedium);  // Llama-3.2-3B
  EXPECT_EQ(size_class(8'030'261'248), SizeClass::kLarge);
}

// The table of method.md §5.
TEST(PresetTest, PaperIsThePublishedMethod) {
  const auto paper = get("paper");
  EXPECT_TRUE(paper.paper_method());
  const auto& dex = paper.spec().dex();
  EXPECT_EQ(dex.form(), DexMethod::FORM_PAPER);
  EXPECT_EQ(dex.projection(), DexMethod::PROJECTION_SHARED);
  EXPECT_EQ(dex.sign(), DexMethod::SIGN_MINUS);
  EXPECT_EQ(dex.lambda().schedule(), Lambda::SCHEDULE_PAPER_EQ4);
  EXPECT_EQ(dex.lambda().anneal_fraction(), 0.5);
  EXPECT_EQ(dex.head_selection().criterion(), HeadSelection::CRITERION_ENTROPY);
  EXPECT_EQ(dex.head_selection().fraction(), 0.5);
  EXPECT_EQ(paper.spec().hyperparameters().learning_rate(), 1e-4);
  EXPECT_EQ(paper.spec().hyperparameters().lambda_learning_rate(), 1e-4);
  EXPECT_EQ(paper.sources().at("dex.lambda.anneal_fraction"), "ours");
  EXPECT_EQ(paper.sources().at("dex.form"), "paper");
}

struct ClassRow {
  const char* name;
  SizeClass size;
  double start, end;
  int64_t steps;
  double tau, eta;
};

class ClassPresetTest : public testing::TestWithParam<ClassRow> {};

TEST_P(ClassPresetTest, HasTheColumnOfItsClass) {
  const auto& row = GetParam();
  const auto spec = get(row.name, row.size).spec();
  const auto& dex = spec.dex();
  EXPECT_EQ(dex.form(), DexMethod::FORM_HEAD_MEAN);
  EXPECT_EQ(dex.sign(), DexMethod::SIGN_PLUS);
  EXPECT_EQ(dex.lambda().start(), row.start);
  EXPECT_EQ(dex.lambda().end(), row.end);
  EXPECT_EQ(dex.lambda().anneal_steps(), row.steps);
  EXPECT_EQ(dex.head_selection().tau(), row.tau);
  EXPECT_EQ(dex.head_selection().eta(), row.eta);
}

INSTANTIATE_TEST_SUITE_P(
    Method5, ClassPresetTest,
    testing::Values(ClassRow{"small", SizeClass::kLarge, 0.05, 0.3, 3000, 1.0, 0.03},
                    ClassRow{"medium", SizeClass::kSmall, 0.1, 0.5, 5000, 1.2, 0.05},
                    ClassRow{"large", SizeClass::kSmall, 0.1, 0.5, 8000, 1.5, 0.07},
                    ClassRow{"auto", SizeClass::kMedium, 0.1, 0.5, 5000, 1.2, 0.05},
                    ClassRow{"code", SizeClass::kSmall, 0.05, 0.65, 3000, 1.8, 0.03},
                    ClassRow{"long_text", SizeClass::kSmall, 0.05, 0.3, 10000, 1.0, 0.03},
                    ClassRow{"multilingual", SizeClass::kLarge, 0.1, 0.5, 8000, 1.5, 0.07}));

// What all columns of the table share (method.md §2.3, §5), and the lines in which they differ.
struct RecipeRow {
  const char* name;
  double learning_rate, branch_learning_rate;
  DexMethod::Projection projection;
  HeadSelection::Criterion criterion;
  uint32_t reselect_every_steps;
};

class RecipeTest : public testing::TestWithParam<RecipeRow> {};

TEST_P(RecipeTest, HasTheLinesOfTheTable) {
  const auto& row = GetParam();
  for (const auto size : {SizeClass::kSmall, SizeClass::kMedium, SizeClass::kLarge}) {
    const auto spec = get(row.name, size).spec();
    const auto& hyper = spec.hyperparameters();
    EXPECT_DOUBLE_EQ(hyper.learning_rate(), row.learning_rate);
    EXPECT_DOUBLE_EQ(hyper.branch_learning_rate(), row.branch_learning_rate);
    const bool paper = std::string_view(row.name) == "paper";
    EXPECT_EQ(hyper.has_lambda_learning_rate(), paper) << "λ is scheduled elsewhere";
    EXPECT_EQ(hyper.lr_scheduler_type(), v1::Hyperparameters::LR_SCHEDULER_COSINE);
    EXPECT_EQ(hyper.warmup_ratio(), 0.03);
    EXPECT_EQ(hyper.max_grad_norm(), 1.0);
    EXPECT_EQ(hyper.n_epochs(), 1u);
    EXPECT_EQ(hyper.weight_decay(), 0.0);
    EXPECT_EQ(hyper.adam_beta1(), 0.9);
    EXPECT_EQ(hyper.adam_beta2(), 0.999);
    const auto& dex = spec.dex();
    EXPECT_EQ(dex.train(), DexMethod::TRAIN_KVO_DEX);
    EXPECT_EQ(dex.w_d_init(), DexMethod::BRANCH_INIT_ZEROS);
    EXPECT_EQ(dex.projection(), row.projection);
    EXPECT_EQ(dex.lambda().schedule(),
              paper ? Lambda::SCHEDULE_PAPER_EQ4 : Lambda::SCHEDULE_COSINE);
    const auto& heads = dex.head_selection();
    EXPECT_EQ(heads.criterion(), row.criterion);
    EXPECT_EQ(heads.has_entropy_unit(), !paper);
    EXPECT_EQ(heads.has_contribution_unit(), !paper);
    if (!paper) {
      EXPECT_EQ(heads.entropy_unit(), HeadSelection::ENTROPY_UNIT_ZSCORE);
      EXPECT_EQ(heads.contribution_unit(), HeadSelection::CONTRIBUTION_UNIT_L2NORM);
    }
    EXPECT_EQ(heads.calibration().n_sequences(), 8u);
    EXPECT_EQ(heads.calibration().seq_length(), 512u);
    EXPECT_EQ(heads.calibration().skip_rows(), 32u);
    EXPECT_EQ(heads.reselect_every_steps(), row.reselect_every_steps);
  }
}

constexpr auto kShared = DexMethod::PROJECTION_SHARED, kPerHead = DexMethod::PROJECTION_PER_HEAD,
               kBottleneck = DexMethod::PROJECTION_BOTTLENECK;
constexpr auto kByThreshold = HeadSelection::CRITERION_THRESHOLD;
INSTANTIATE_TEST_SUITE_P(
    Method5, RecipeTest,
    testing::Values(RecipeRow{"paper", 1e-4, 1e-4, kShared, HeadSelection::CRITERION_ENTROPY, 0},
                    RecipeRow{"small", 5e-5, 1e-4, kPerHead, kByThreshold, 0},
                    RecipeRow{"medium", 5e-5, 1e-4, kPerHead, kByThreshold, 0},
                    RecipeRow{"large", 5e-5, 1e-4, kPerHead, kByThreshold, 0},
                    RecipeRow{"code", 5e-5, 1e-4, kPerHead, kByThreshold, 0},
                    RecipeRow{"long_text", 3.5e-5, 7e-5, kPerHead, kByThreshold, 0},
                    RecipeRow{"multilingual", 5e-5, 1e-4, kBottleneck, kByThreshold, 500}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PresetTest, DomainPresetsChangeOnlyTheirOwnLines) {
  const auto long_text = get("long_text").spec().hyperparameters();
  EXPECT_DOUBLE_EQ(long_text.learning_rate(), 3.5e-5);
  EXPECT_DOUBLE_EQ(long_text.branch_learning_rate(), 7e-5);
  const auto multilingual = get("multilingual").spec().dex();
  EXPECT_EQ(multilingual.projection(), DexMethod::PROJECTION_BOTTLENECK);
  EXPECT_EQ(multilingual.bottleneck().width_ratio(), 1.5);
  EXPECT_EQ(multilingual.bottleneck().scope(), DexMethod::Bottleneck::SCOPE_PER_HEAD);
  EXPECT_EQ(multilingual.head_selection().reselect_every_steps(), 500u);
  EXPECT_EQ(get("code").spec().dex().projection(), DexMethod::PROJECTION_PER_HEAD);
}

TEST(PresetTest, EveryValueNamesItsSource) {
  for (const auto name : preset_names()) {
    const auto chosen = get(name);
    EXPECT_EQ(chosen.version(), std::string(name) + (name == "multilingual" ? "@2" : "@1"));
    for (const auto& [path, source] : chosen.sources()) {
      EXPECT_THAT(source, testing::AnyOf("paper", "brief", "ours")) << path;
    }
    EXPECT_GE(chosen.sources_size(), 15) << name;
  }
}

TEST(PresetTest, AHyphenIsAnUnderscore) {
  EXPECT_EQ(get("long-text").name(), "long_text");
  EXPECT_EQ(get("long-text@1").version(), "long_text@1");
  EXPECT_EQ(canonical_preset_name("long-text@1"), "long_text@1");
}

TEST(PresetTest, UnknownNameOrVersionSaysWhatThereIs) {
  const auto unknown = preset("python", SizeClass::kSmall).status();
  EXPECT_EQ(unknown.reason(), "UNKNOWN_PRESET");
  EXPECT_THAT(unknown.message(), HasSubstr("\"python\""));
  EXPECT_THAT(unknown.message(), HasSubstr("code, long_text, multilingual"));
  EXPECT_EQ(preset("code@7", SizeClass::kSmall).status().reason(), "UNKNOWN_PRESET");
  EXPECT_TRUE(preset("code@1", SizeClass::kSmall).ok());
  EXPECT_THAT(preset("multilingual@3", SizeClass::kSmall).status().message(),
              HasSubstr("there is multilingual@1, multilingual@2"));
}

// A preset that changes gets a version; the one before stays.
TEST(PresetTest, TheFirstMultilingualReadsRowsAsTheyAre) {
  auto first = get("multilingual@1").spec(), second = get("multilingual").spec();
  EXPECT_EQ(get("multilingual@1").version(), "multilingual@1");
  EXPECT_EQ(first.hyperparameters().group_by(), v1::Hyperparameters::GROUP_BY_NONE);
  EXPECT_EQ(second.hyperparameters().group_by(), v1::Hyperparameters::GROUP_BY_LANGUAGE);
  EXPECT_EQ(get("multilingual").sources().at("hyperparameters.group_by"), "ours");
  first.mutable_hyperparameters()->clear_group_by();
  second.mutable_hyperparameters()->clear_group_by();
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString()) << "and nothing else";
}

}  // namespace
}  // namespace dex::core
