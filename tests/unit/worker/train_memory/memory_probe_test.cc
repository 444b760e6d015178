// A job that ends after one update on its longest rows (Estimate.METHOD_PROBE).
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "services/base/sha256.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train_memory/failing_allocator.h"

namespace dex::train::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class MemoryProbeTest : public JobTest {
 protected:
  // Two passes, a row a sequence: what is longest can be counted by hand.
  JobSpec probe(const std::string& attempt = "probe") const {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 0;
    spec.hyperparameters.n_epochs = 2;
    spec.hyperparameters.packing = false;
    spec.probe_only = true;
    return spec;
  }
};

TEST_F(MemoryProbeTest, DoesOneUpdateOnTheLongestRows) {
  std::vector<size_t> lengths;
  for (const auto& row : tiny_rows(60, 40)) lengths.push_back(row.size());  // train.jsonl
  std::sort(lengths.rbegin(), lengths.rend());
  RecordingSession session;
  const Published published = run(probe(), session);
  ASSERT_TRUE(published.memory_probe);
  const MemoryProbe& found = *published.memory_probe;
  EXPECT_EQ(found.longest_row_tokens, static_cast<int64_t>(lengths[0]));
  EXPECT_EQ(found.step_tokens,
            static_cast<int64_t>(std::accumulate(lengths.begin(), lengths.begin() + 4, size_t{0})))
      << "batch_size 4";
  EXPECT_EQ(found.micro_batch_size, 2);
  EXPECT_EQ(found.max_seq_length, 64);
  EXPECT_GT(found.peak_memory_bytes, 10 << 20);
  EXPECT_LT(found.peak_memory_bytes, int64_t{64} << 30);
  EXPECT_GE(found.step_seconds, 0);
  EXPECT_THAT(session.phases, Contains(Phase::kProbing));
  EXPECT_THAT(session.phases, Not(Contains(Phase::kTraining)));
}

TEST_F(MemoryProbeTest, CountsTheUpdatesOfTheJob) {
  RecordingSession session, whole;
  const Published published = run(probe(), session);
  JobSpec job = probe("job");
  job.probe_only = false;
  run(job, whole);
  EXPECT_EQ(published.memory_probe->total_steps, whole.last.total_steps);
  EXPECT_EQ(published.memory_probe->total_steps, 30) << "2 passes of 60 rows, 4 an update";
}

TEST_F(MemoryProbeTest, LeavesItsReportAndNothingElse) {
  RecordingSession session;
  const JobSpec spec = probe();
  const Published published = run(spec, session);
  EXPECT_EQ(published.path, (spec.attempt_dir / "final").string());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(published.path))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files, UnorderedElementsAre("probe.json", "checksums.json"));
  const std::string report = bytes_of(spec.attempt_dir / "final/probe.json");
  const std::string manifest = bytes_of(spec.attempt_dir / "final/checksums.json");
  EXPECT_EQ(base::sha256_hex(manifest), published.manifest_sha256);
  EXPECT_EQ(json::parse(manifest).at("probe.json"), base::sha256_hex(report));
  EXPECT_EQ(json::parse(report).at("step_tokens"), published.memory_probe->step_tokens);
  EXPECT_THAT(session.checkpoints, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(spec.attempt_dir / "step-1"));
}

// It answers for the setting that was asked for.
TEST_F(MemoryProbeTest, OutOfMemoryIsItsAnswerAndNoReasonToTryAgain) {
  FailingAllocator& allocator = FailingAllocator::installed();
  RecordingSession session;
  int polls = 0;
  session.script = [&](const Progress&) -> Command {
    if (session.phases.back() == Phase::kProbing && ++polls == 1) allocator.fail_at(1);
    return {};
  };
  try {
    run(probe(), session);
    ADD_FAILURE() << "the probe succeeded";
  } catch (const OutOfMemoryFailure& failure) {
    const OutOfMemory& out = failure.post_mortem();
    EXPECT_EQ(out.where, MemoryPlace::kForward) << "of the second micro-batch";
    EXPECT_EQ(out.micro_batch_size, 2);
    EXPECT_GT(out.longest_row_tokens, 0);
    EXPECT_FALSE(out.retry_micro_batch_size);
  }
  allocator.fail_at(0);
  EXPECT_EQ(session.data("out_of_memory").size(), 1u);
}

}  // namespace
}  // namespace dex::train::testing
