// What makes a kvo_only job the control of another one, on specs as they are resolved.
#include "scheduler/core/gate_controls.h"

#include <gmock/gmock.h>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

// A control of `in` with that preset.
ResolveInput control_of(ResolveInput in, const std::string& preset) {
  in.spec.mutable_kvo_only()->set_preset(preset);
  return in;
}

v1::FineTuningJobSpec spec_of(const ResolveInput& in) {
  return resolved(in).config.spec();
}

// Whatever the preset: its control differs in the branch and in nothing that is compared.
TEST(GateControlsTest, TheSamePresetWithoutItsBranchIsTheControl) {
  for (const char* preset : {"paper", "auto", "code", "long_text", "multilingual"}) {
    const auto in = input(preset);
    EXPECT_THAT(control_differences(spec_of(in), spec_of(control_of(in, preset))), IsEmpty())
        << preset;
  }
}

TEST(GateControlsTest, OtherRowsSeedsAndRatesAreNoControl) {
  const auto job = input("code");
  const auto differences = [&job](auto change) {
    auto control = control_of(job, "code");
    change(control.spec);
    return control_differences(spec_of(job), spec_of(control));
  };
  EXPECT_THAT(differences([](auto& spec) { spec.set_seed(8); }),
              ElementsAre("seed is 7, and 8 there"));
  EXPECT_THAT(differences([](auto& spec) { spec.set_training_file("file-2"); }),
              ElementsAre("training_file is \"file-1\", and \"file-2\" there"));
  EXPECT_THAT(differences([](auto& spec) { spec.mutable_hyperparameters()->set_max_steps(60); }),
              Contains("hyperparameters.max_steps is 180, and 60 there"));
  EXPECT_THAT(
      differences([](auto& spec) { spec.mutable_hyperparameters()->set_learning_rate(1e-3); }),
      ElementsAre(StartsWith("hyperparameters.learning_rate is ")));
  EXPECT_THAT(differences([](auto& spec) {
                spec.mutable_hyperparameters()->set_micro_batch_size(1);
                spec.set_suffix("control");
                spec.mutable_checkpoints()->set_keep_last(5);
              }),
              IsEmpty())
      << "which change nothing that is trained";
}

// Of groups, each with its share of the rows that are read (Hyperparameters.group_by).
TEST(GateControlsTest, OtherGroupsAndWeightsAreNoControl) {
  auto job = spec_of(input("code"));
  const auto control = spec_of(control_of(input("code"), "code"));
  auto& hyper = *job.mutable_hyperparameters();
  hyper.set_group_by(v1::Hyperparameters::GROUP_BY_LANGUAGE);
  EXPECT_THAT(
      control_differences(job, control),
      ElementsAre("hyperparameters.group_by is GROUP_BY_LANGUAGE, and GROUP_BY_NONE there"));
  auto same = control;
  same.mutable_hyperparameters()->set_group_by(v1::Hyperparameters::GROUP_BY_LANGUAGE);
  EXPECT_THAT(control_differences(job, same), IsEmpty());
  (*hyper.mutable_group_weights())["cy"] = 2;
  EXPECT_THAT(control_differences(job, same),
              ElementsAre("hyperparameters.group_weights are others there"));

  auto of_before = control;
  of_before.mutable_hyperparameters()->clear_group_by();
  EXPECT_THAT(control_differences(spec_of(input("code")), of_before), IsEmpty());
}

// One that waits longer sees more of the rows, and the best of a run is not its last.
TEST(GateControlsTest, AnotherRuleOfStoppingEarlyIsNoControl) {
  auto early = input("code");
  early.spec.mutable_early_stopping()->set_enabled(true);
  const auto differences = [&early](auto change) {
    auto control = control_of(early, "code");
    change(control.spec);
    return control_differences(spec_of(early), spec_of(control));
  };
  EXPECT_THAT(differences([](auto&) {}), IsEmpty());
  EXPECT_THAT(differences([](auto& spec) { spec.mutable_early_stopping()->set_patience(5); }),
              ElementsAre("early_stopping.patience is 3, and 5 there"));
  EXPECT_THAT(
      differences([](auto& spec) { spec.mutable_early_stopping()->set_restore_best(false); }),
      ElementsAre("early_stopping.restore_best is true, and false there"));
  EXPECT_THAT(differences([](auto& spec) { spec.mutable_evaluation()->set_every_steps(7); }),
              ElementsAre(StartsWith("evaluation.every_steps is ")));
  EXPECT_THAT(differences([](auto& spec) { spec.clear_early_stopping(); }),
              ElementsAre("early_stopping.enabled is true, and false there"));
  // Where nothing stops early, evaluations change nothing that is trained.
  auto seldom = control_of(input("code"), "code");
  seldom.spec.mutable_evaluation()->set_every_steps(7);
  EXPECT_THAT(control_differences(spec_of(input("code")), spec_of(seldom)), IsEmpty());
}

// Rivals have rates of their own; the data order is compared all the same.
TEST(GateControlsTest, RivalsAreComparedByTheirDataOrder) {
  auto lora = input("code");
  lora.spec.mutable_lora();
  EXPECT_THAT(control_differences(spec_of(lora), spec_of(control_of(input("code"), "auto"))),
              IsEmpty());
  lora.seed = 8;
  EXPECT_THAT(control_differences(spec_of(lora), spec_of(control_of(input("code"), "auto"))),
              ElementsAre("seed is 8, and 7 there"));
}

}  // namespace
}  // namespace dex::core
