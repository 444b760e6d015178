// When a waiting job should start.

#include "scheduler/core/start_estimate.h"

#include <gtest/gtest.h>

namespace dex::core {
namespace {

TEST(StartEstimateTest, ByTheRatesOfWhatRunsAndTheOrderOfTheQueue) {
  EXPECT_FALSE(starts_in_seconds(0, {}, {})) << "no slot, no time";
  EXPECT_EQ(starts_in_seconds(1, {}, {}), 0);
  EXPECT_EQ(starts_in_seconds(1, {}, {100}), 100) << "behind one that starts now";
  EXPECT_EQ(starts_in_seconds(2, {}, {100, 30, 50}), 80) << "slots: 100, and 30 + 50";
  // What runs says itself how long it still needs.
  EXPECT_EQ(starts_in_seconds(0, {{.elapsed_seconds = 40, .remaining_seconds = 60}}, {}), 60);
  EXPECT_EQ(starts_in_seconds(0,
                              {{.elapsed_seconds = 40, .remaining_seconds = 60},
                               {.elapsed_seconds = 10, .remaining_seconds = 20}},
                              {}),
            20);
}

// Estimates by formula are off by what the machine is; running jobs show by how much.
TEST(StartEstimateTest, WhatWaitsIsStretchedAsWhatRuns) {
  const RunningJob slow{.elapsed_seconds = 100, .remaining_seconds = 100, .estimated_seconds = 50};
  EXPECT_EQ(slowness({}), 1);
  EXPECT_EQ(slowness({slow}), 4);
  EXPECT_EQ(starts_in_seconds(0, {slow}, {10}), 100 + 4 * 10);
  // One that has not told yet is taken to be as slow.
  const RunningJob young{.elapsed_seconds = 5, .estimated_seconds = 10};
  EXPECT_EQ(starts_in_seconds(0, {slow, young}, {}), 4 * 10 - 5);
  const RunningJob late{.elapsed_seconds = 500, .estimated_seconds = 10};
  EXPECT_EQ(starts_in_seconds(0, {slow, late}, {}), 0) << "any moment, and never in the past";
  EXPECT_EQ(slowness({{.elapsed_seconds = 1e6, .remaining_seconds = 0, .estimated_seconds = 1}}),
            10);
}

}  // namespace
}  // namespace dex::core
