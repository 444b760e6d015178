// Scheduler and trainer agree on what a spec may be: a job that Create takes never fails on its
// settings, and the trainer refuses by hand what Create refuses.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "dex/internal/v1/frames.pb.h"
#include "proto/spec_values.h"
#include "scheduler/core/check_spec.h"
#include "scheduler/core/presets.h"
#include "scheduler/core/resolve.h"
#include "tests/integration/spec_parity/spec_fields.h"
#include "tests/unit/scheduler/core/smollm2.h"
#include "worker/train/failure.h"
#include "worker/train/spec_io.h"

namespace dex {
namespace {

using testing::HasSubstr;
using v1::DexMethod;
using v1::FineTuningJobSpec;
using v1::HeadSelection;
using v1::Lambda;

// What a user may start from: a method without a preset, or one of dex's presets.
const std::vector<std::string> kWithoutPreset = {"kvo_only", "lora", "adapter", "full", "diff"};

std::vector<std::string> bases() {
  std::vector<std::string> names = kWithoutPreset;
  for (const auto name : core::preset_names()) names.emplace_back(name);
  return names;
}

FineTuningJobSpec asked(const std::string& base) {
  FineTuningJobSpec spec;
  spec.set_model("smollm2-135m-instruct");
  spec.set_training_file("file-1");
  spec.mutable_hyperparameters()->set_max_steps(180);
  if (base == "kvo_only") spec.mutable_kvo_only();
  if (base == "lora") spec.mutable_lora();
  if (base == "adapter") spec.mutable_adapter();
  if (base == "full") spec.mutable_full();
  if (base == "diff") spec.mutable_diff();
  if (spec.method_case() == FineTuningJobSpec::METHOD_NOT_SET) spec.mutable_dex()->set_preset(base);
  return spec;
}

// A field of another method would change the method, not the value.
bool applies(const SpecField& field, const std::string& base) {
  const std::string first = field.path.substr(0, field.path.find('.'));
  const bool of_method = first == "dex" || std::find(kWithoutPreset.begin(), kWithoutPreset.end(),
                                                     first) != kWithoutPreset.end();
  const bool preset =
      std::find(kWithoutPreset.begin(), kWithoutPreset.end(), base) == kWithoutPreset.end();
  return !of_method || first == (preset ? "dex" : base);
}

base::Result<FineTuningJobSpec> effective(const FineTuningJobSpec& spec) {
  core::ResolveInput input;
  input.spec = spec;
  input.model = core::smollm2();
  input.training = {v1::FILE_FORMAT_TEXT, 400, 1'000'000, 20'000};
  input.seed = 7;
  auto resolved = core::resolve(input);
  if (!resolved.ok()) return resolved.status();
  return resolved->config.spec();
}

// The trainer's words when it refuses an effective spec; empty: it takes it.
std::string refusal(const FineTuningJobSpec& spec, train::JobSpec* read = nullptr) {
  internal::v1::TrainerStart start;
  *start.mutable_spec() = spec;
  start.set_model_dir("/model");
  start.set_training_path("/rows.jsonl");
  try {
    const auto job = train::parse_spec_bytes(start.SerializeAsString());
    if (read != nullptr) *read = job;
  } catch (const train::Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(SpecParityTest, EveryNumberOfTheContractHasLimits) {
  for (const SpecField& field : spec_fields()) {
    if (field.is_number()) {
      EXPECT_TRUE(proto::limits_of(field.path))
          << field.path << ": give it limits in proto/spec_values.cc";
    }
  }
}

TEST(SpecParityTest, TheTrainerTakesEveryPresetWithAnySingleValueThatCreateTakes) {
  int taken = 0, refused = 0;
  for (const std::string& base : bases()) {
    for (const SpecField& field : spec_fields()) {
      if (!applies(field, base)) continue;
      for (const double value : field.candidates()) {
        FineTuningJobSpec spec = asked(base);
        field.set(spec, value);
        const auto resolved = effective(spec);
        ++(resolved.ok() ? taken : refused);
        if (!resolved.ok()) continue;
        EXPECT_EQ(refusal(*resolved), "") << spec.ShortDebugString();
      }
    }
  }
  EXPECT_GT(taken, 2000);
  EXPECT_GT(refused, 2000);
}

TEST(SpecParityTest, TheTrainerRefusesEveryValueThatCreateRefuses) {
  for (const std::string& base : bases()) {
    const auto usual = effective(asked(base));
    ASSERT_TRUE(usual.ok()) << usual.status().to_string();
    ASSERT_EQ(refusal(*usual), "") << base;
    for (const SpecField& field : spec_fields()) {
      if (!applies(field, base)) continue;
      for (const double value : field.candidates()) {
        FineTuningJobSpec spec = *usual;
        field.set(spec, value);
        for (const core::Problem& problem : core::check_values(spec)) {
          if (problem.field != field.path || problem.reason == "CONFLICTING_FIELDS") continue;
          EXPECT_THAT(refusal(spec), HasSubstr(field.path)) << spec.ShortDebugString();
        }
      }
    }
  }
}

// Several choices at once: what one drops or needs, another may have set.
TEST(SpecParityTest, TheTrainerTakesWhateverCreateMakesOfManyValues) {
  const auto fields = spec_fields();
  const auto names = bases();
  std::mt19937 random(17);
  const auto pick = [&random](size_t count) { return random() % count; };
  int taken = 0;
  for (int round = 0; round < 10'000; ++round) {
    const std::string& base = names[pick(names.size())];
    FineTuningJobSpec spec = asked(base);
    for (size_t changes = 2 + pick(4); changes > 0; --changes) {
      const SpecField& field = fields[pick(fields.size())];
      const auto values = field.candidates();
      FineTuningJobSpec changed = spec;
      if (applies(field, base)) field.set(changed, values[pick(values.size())]);
      // Mostly values that are right by themselves, or nothing would be left of five.
      if (proto::bad_values(changed).empty() || pick(50) == 0) spec = std::move(changed);
    }
    const auto resolved = effective(spec);
    if (!resolved.ok()) continue;
    ++taken;
    ASSERT_EQ(refusal(*resolved), "") << spec.ShortDebugString();
    const auto again = effective(*resolved);
    ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << spec.ShortDebugString();
    ASSERT_EQ(again->SerializeAsString(), resolved->SerializeAsString()) << spec.ShortDebugString();
  }
  EXPECT_GT(taken, 1000);
}

TEST(SpecParityTest, AMultiplierScalesThePresetsRatesOnceAndIsGone) {
  FineTuningJobSpec spec = asked("paper");
  spec.mutable_hyperparameters()->set_learning_rate_multiplier(3);
  spec.mutable_hyperparameters()->set_lambda_learning_rate(1e-2);
  const auto resolved = effective(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  EXPECT_FALSE(resolved->hyperparameters().has_learning_rate_multiplier());
  train::JobSpec read;
  ASSERT_EQ(refusal(*resolved, &read), "");
  EXPECT_DOUBLE_EQ(read.hyperparameters.learning_rate, 3e-4);
  EXPECT_DOUBLE_EQ(read.hyperparameters.branch_learning_rate, 3e-4);
  EXPECT_DOUBLE_EQ(read.hyperparameters.lambda_learning_rate, 1e-2);  // the user's own

  // The same by hand, without a scheduler.
  spec.mutable_dex()->clear_preset();
  ASSERT_EQ(refusal(spec, &read), "");
  EXPECT_DOUBLE_EQ(read.hyperparameters.branch_learning_rate, 3e-4);
  EXPECT_DOUBLE_EQ(read.hyperparameters.lambda_learning_rate, 1e-2);
}

TEST(SpecParityTest, AChoiceBringsThePartnersThatThePresetLacks) {
  FineTuningJobSpec cosine = asked("paper");
  cosine.mutable_dex()->mutable_lambda()->set_schedule(Lambda::SCHEDULE_COSINE);
  cosine.mutable_dex()->mutable_lambda()->set_end(0.4);
  auto resolved = effective(cosine);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  train::JobSpec read;
  ASSERT_EQ(refusal(*resolved, &read), "");
  EXPECT_EQ(read.dex.lambda.start, 0.05);  // the small class's
  EXPECT_EQ(read.dex.lambda.end, 0.4);

  FineTuningJobSpec threshold = asked("paper");
  auto& heads = *threshold.mutable_dex()->mutable_head_selection();
  heads.set_criterion(HeadSelection::CRITERION_THRESHOLD);
  heads.set_eta(0.1);
  resolved = effective(threshold);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  ASSERT_EQ(refusal(*resolved, &read), "");
  EXPECT_EQ(read.heads.tau, 1.0);
  EXPECT_EQ(read.heads.eta, 0.1);
  EXPECT_TRUE(resolved->dex().head_selection().has_entropy_unit());

  FineTuningJobSpec shared = asked("multilingual");
  shared.mutable_dex()->set_projection(DexMethod::PROJECTION_SHARED);
  resolved = effective(shared);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  EXPECT_FALSE(resolved->dex().has_bottleneck());
  EXPECT_EQ(refusal(*resolved), "");
}

// full+dex publishes a folded checkpoint (method.md §3.5).
TEST(SpecParityTest, BothRefuseFullDexWithABranchThatCantBeFolded) {
  const auto with = [](DexMethod::Form form, DexMethod::Bottleneck::Activation activation) {
    FineTuningJobSpec spec = asked("paper");
    spec.mutable_dex()->set_form(form);
    if (activation == DexMethod::Bottleneck::ACTIVATION_UNSPECIFIED) return spec;
    spec.mutable_dex()->set_projection(DexMethod::PROJECTION_BOTTLENECK);
    spec.mutable_dex()->mutable_bottleneck()->set_activation(activation);
    return spec;
  };
  const auto full = [](FineTuningJobSpec spec) {
    spec.mutable_dex()->set_train(DexMethod::TRAIN_FULL_DEX);
    return spec;
  };
  using Bottleneck = DexMethod::Bottleneck;
  for (const auto& spec : {with(DexMethod::FORM_PREFIX_MEAN, Bottleneck::ACTIVATION_UNSPECIFIED),
                           with(DexMethod::FORM_UNIFORM_MAP, Bottleneck::ACTIVATION_UNSPECIFIED),
                           with(DexMethod::FORM_PAPER, Bottleneck::ACTIVATION_SILU),
                           with(DexMethod::FORM_HEAD_MEAN, Bottleneck::ACTIVATION_GELU)}) {
    const auto adapter = effective(spec);  // any other train publishes an adapter
    ASSERT_TRUE(adapter.ok()) << adapter.status().to_string();
    EXPECT_EQ(refusal(*adapter), "");
    const auto resolved = effective(full(spec));
    EXPECT_EQ(resolved.status().reason(), "CONFLICTING_FIELDS");
    EXPECT_THAT(resolved.status().message(), HasSubstr("can't be folded, as train FULL_DEX needs"));
    EXPECT_THAT(refusal(full(*adapter)), HasSubstr("can't be folded, as train FULL_DEX needs"));
  }
  const auto folds = with(DexMethod::FORM_HEAD_MEAN, Bottleneck::ACTIVATION_NONE);
  EXPECT_TRUE(effective(full(folds)).ok()) << effective(full(folds)).status().to_string();
}

}  // namespace
}  // namespace dex
