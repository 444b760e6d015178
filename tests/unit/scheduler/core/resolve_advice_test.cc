// What can be said of a job before it starts (method.md §5).
#include <gmock/gmock.h>

#include <string>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::Contains;
using testing::HasSubstr;
using v1::DexMethod;

// method.md §10 item 17: 106 updates at 1e-4 can't keep the branch alive.
TEST(ResolveAdviceTest, WarnsWhenTheBranchIsOutOfReach) {
  auto in = input("paper");
  in.spec.mutable_hyperparameters()->set_max_steps(106);
  EXPECT_THAT(resolved(in).warnings, Contains(HasSubstr("branch_out_of_reach")));
  in.spec.mutable_hyperparameters()->set_lambda_learning_rate(1e-2);
  in.spec.mutable_hyperparameters()->set_branch_learning_rate(1e-3);
  EXPECT_THAT(resolved(in).warnings, testing::Not(Contains(HasSubstr("branch_out_of_reach"))));
}

// Without max_steps the number of updates is a guess and is called one.
TEST(ResolveAdviceTest, AGuessOfTheUpdatesIsCalledOne) {
  auto in = input("paper");
  in.spec.mutable_hyperparameters()->clear_max_steps();
  const auto result = resolved(in);
  EXPECT_THAT(result.warnings,
              Contains(HasSubstr("in about " + std::to_string(result.workload.updates) +
                                 " updates, the branch's share of O")));
}

// A gate moves by its rate an update, and V̄ is about as large as O: 106 updates at 1e-4 and λ 0.3
// give 0.3·1e-4·53.
TEST(ResolveAdviceTest, WarnsWhenTheGatesOfUniformMapAreOutOfReach) {
  auto in = input("small");
  in.spec.mutable_hyperparameters()->set_max_steps(106);
  in.spec.mutable_dex()->set_form(DexMethod::FORM_UNIFORM_MAP);
  EXPECT_THAT(resolved(in).warnings,
              Contains(HasSubstr("λ can reach 0.3 in 106 updates, the branch's share of O about "
                                 "0.0016")));
  in.spec.mutable_hyperparameters()->set_branch_learning_rate(1e-2);
  EXPECT_THAT(resolved(in).warnings, testing::Not(Contains(HasSubstr("branch_out_of_reach"))));
}

// method.md §5, §12: the paper's rate, kept for a batch that it was not tuned for.
TEST(ResolveAdviceTest, WarnsOfThePapersRateOnSmallBatchesOfLargerModels) {
  const auto warned = [](const ResolveInput& in) {
    for (const auto& warning : resolved(in).warnings) {
      if (warning.starts_with("lr_small_batch: ")) return warning;
    }
    return std::string();
  };
  auto in = input("paper");
  ASSERT_LT(resolved(in).workload.tokens_per_update, 500'000);
  EXPECT_EQ(warned(in), "") << "below 1e9 parameters 1e-4 is the better rate";
  in.model.set_parameters(1'500'000'000);
  EXPECT_THAT(warned(in), HasSubstr("try 5e-5 (medium) or 2e-5 (large)"));
  EXPECT_EQ(resolved(in).config.spec().hyperparameters().learning_rate(), 1e-4) << "it is kept";
  for (const auto train :
       {DexMethod::TRAIN_LORA_DEX, DexMethod::TRAIN_FULL_DEX, DexMethod::TRAIN_DEX_ONLY}) {
    auto other = in;
    other.spec.mutable_dex()->set_train(train);
    EXPECT_EQ(warned(other), "") << train;
  }
  auto given = in;
  given.spec.mutable_hyperparameters()->set_learning_rate(1e-4);
  EXPECT_EQ(warned(given), "");
  auto medium = in;
  medium.spec.mutable_dex()->set_preset("medium");
  EXPECT_EQ(warned(medium), "");
}

}  // namespace
}  // namespace dex::core
