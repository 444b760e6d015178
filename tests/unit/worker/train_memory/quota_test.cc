// A tenant's file quota (jobs.md §6): final, and the last good checkpoint stays.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/failing_file_layer.h"
#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

class QuotaTest : public JobTest, public ::testing::WithParamInterface<int> {
 protected:
  JobSpec job(const std::string& attempt) const {
    JobSpec spec = this->spec(attempt);
    spec.evaluation.every_steps = 6;
    spec.checkpoints.every_steps = 3;
    return spec;
  }
};

TEST_P(QuotaTest, EndsTheJobAndLeavesItsLastCheckpoint) {
  // Calls up to the first checkpoint, on a job that ends there.
  support::FailingFileLayer counting(1 << 30, GetParam(), false);
  RecordingSession one;
  bool asked = false;
  one.script = [&](const Progress& progress) -> Command {
    if (asked || progress.step < 3) return {};
    asked = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(job("counted"), one, counting), Stopped);
  ASSERT_EQ(one.checkpoints.size(), 1u);

  support::FailingFileLayer files(counting.calls() + 1, GetParam(), false);
  RecordingSession session;
  const Failure failure = failure_of(job("attempt-1"), session, files);
  EXPECT_EQ(failure.exit(), Exit::kQuota);
  EXPECT_EQ(failure.code(), "quota_exceeded");
  ASSERT_EQ(session.checkpoints.size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "attempt-1/step-3/MANIFEST.json"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "attempt-1/step-6"));
}

INSTANTIATE_TEST_SUITE_P(Errors, QuotaTest, ::testing::Values(EDQUOT, EFBIG), [](const auto& info) {
  return info.param == EDQUOT ? "EDQUOT" : "EFBIG";
});

}  // namespace
}  // namespace dex::train::testing
