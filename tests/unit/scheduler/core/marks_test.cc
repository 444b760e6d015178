#include <gmock/gmock.h>

#include <string>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using v1::HeadSelection;
using v1::Lambda;

// method.md §5: whose a value is that nobody asked for, as `presets show` has it; of the defaults
// too.
TEST(MarksTest, SourcesTellWhoseTheValuesAre) {
  auto in = input("paper");
  in.spec.mutable_dex()->mutable_head_selection()->set_criterion(
      HeadSelection::CRITERION_THRESHOLD);
  auto config = resolved(in).config;
  const auto source = [&](const std::string& path) { return config.sources().at(path); };
  EXPECT_EQ(source("dex.form"), "PRESET (paper)");
  EXPECT_EQ(source("dex.lambda.anneal_fraction"), "PRESET (ours)");
  EXPECT_EQ(source("hyperparameters.learning_rate"), "PRESET (paper)");
  EXPECT_EQ(source("dex.head_selection.criterion"), "USER");
  EXPECT_EQ(source("dex.head_selection.tau"), "DEFAULT (brief)") << "of the size class";
  EXPECT_EQ(source("dex.head_selection.entropy_unit"), "DEFAULT (ours)");
  EXPECT_EQ(source("checkpoints.keep_last"), "DEFAULT (ours)");
  in = input("small");
  in.spec.mutable_dex()->mutable_lambda()->set_schedule(Lambda::SCHEDULE_PAPER_EQ4);
  config = resolved(in).config;
  EXPECT_EQ(source("dex.lambda.learn_init"), "DEFAULT (paper)");
  EXPECT_EQ(source("hyperparameters.lambda_learning_rate"), "DEFAULT (paper)");
  EXPECT_EQ(source("hyperparameters.learning_rate"), "PRESET (brief)");
  in.spec.mutable_lora();
  config = resolved(in).config;
  EXPECT_EQ(source("lora.r"), "AUTO (brief)");
  EXPECT_EQ(source("lora.alpha"), "AUTO");
  EXPECT_EQ(source("hyperparameters.warmup_ratio"), "DEFAULT (paper)");
  in.spec.mutable_adapter();
  config = resolved(in).config;
  EXPECT_EQ(source("adapter.size"), "AUTO (brief)");
}

}  // namespace
}  // namespace dex::core
