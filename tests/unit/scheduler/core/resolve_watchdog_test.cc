// Start, watchdog, calibration file and precision in resolved specs.
#include <gmock/gmock.h>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::HasSubstr;
using v1::HeadSelection;

TEST(ResolveStartTest, AJobStartsByItselfUnlessItsUserSaysNo) {
  auto in = input();
  EXPECT_TRUE(resolved(in).config.spec().auto_start());
  EXPECT_EQ(resolved(in).config.sources().at("auto_start"), "DEFAULT (ours)");
  in.spec.set_auto_start(false);
  EXPECT_FALSE(resolved(in).config.spec().auto_start());
  EXPECT_EQ(resolved(in).config.sources().at("auto_start"), "USER");
}

TEST(ResolveWatchdogTest, TheWatchdogHasItsDefaultsAndRollsBackOnlyWhereItIsTold) {
  auto in = input();
  auto config = resolved(in).config;
  EXPECT_EQ(config.spec().watchdog().loss_factor(), 3);
  EXPECT_EQ(config.spec().watchdog().loss_patience(), 20u);
  EXPECT_EQ(config.spec().watchdog().on_trip(), v1::WatchdogOptions::ON_TRIP_ROLLBACK);
  EXPECT_EQ(config.spec().watchdog().max_rollbacks(), 1u);
  EXPECT_EQ(config.sources().at("watchdog.on_trip"), "DEFAULT (ours)");
  in.spec.mutable_watchdog()->set_on_trip(v1::WatchdogOptions::ON_TRIP_FAIL);
  config = resolved(in).config;
  EXPECT_EQ(config.sources().at("watchdog.on_trip"), "USER");
  EXPECT_FALSE(config.spec().watchdog().has_max_rollbacks());
  in.spec.mutable_watchdog()->set_max_rollbacks(2);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(), HasSubstr("watchdog.max_rollbacks"));
  in.spec.mutable_watchdog()->clear_max_rollbacks();
  in.spec.mutable_watchdog()->set_loss_factor(1);
  EXPECT_EQ(refused(in).reason(), "VALUE_OUT_OF_RANGE");
}

TEST(ResolveCalibrationTest, ACalibrationFileNeedsACriterionThatMeasures) {
  auto in = input("paper");
  auto& heads = *in.spec.mutable_dex()->mutable_head_selection();
  heads.mutable_calibration()->set_file("file-9");
  EXPECT_EQ(resolved(in).config.spec().dex().head_selection().calibration().file(), "file-9");
  heads.set_criterion(HeadSelection::CRITERION_ALL);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(), HasSubstr("dex.head_selection.calibration.file"));
}

TEST(ResolvePrecisionTest, APrecisionThatIsNotThereIsRefusedByName) {
  auto in = input();
  in.spec.mutable_hyperparameters()->set_precision(v1::Hyperparameters::PRECISION_BF16);
  EXPECT_EQ(refused(in).reason(), "INVALID_FIELD");
  EXPECT_THAT(refused(in).message(),
              HasSubstr("hyperparameters.precision must be PRECISION_FP32 or unset"));
  in.spec.mutable_hyperparameters()->set_precision(v1::Hyperparameters::PRECISION_FP32);
  EXPECT_TRUE(resolve(in).ok());
}

}  // namespace
}  // namespace dex::core
