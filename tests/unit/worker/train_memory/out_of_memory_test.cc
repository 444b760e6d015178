// A job whose allocations fail: where it was, what it says, what comes next (jobs.md §6, api.md
// §3).
#include "worker/train/out_of_memory.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train_memory/failing_allocator.h"

namespace dex::train::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class OutOfMemoryTest : public JobTest {
 protected:
  OutOfMemoryTest() : allocator_(FailingAllocator::installed()) {
    for (const auto& row : tiny_rows(60, 40))  // train.jsonl of JobTest
      longest_row_ = std::max(longest_row_, static_cast<int64_t>(row.size()));
  }
  ~OutOfMemoryTest() override { allocator_.fail_at(0); }

  // Six updates of four packs, two at a time; evaluated before the first and after the last.
  JobSpec job(const std::string& attempt = "attempt-1") const {
    JobSpec spec = this->spec(attempt);
    spec.evaluation.every_steps = 6;
    spec.checkpoints.every_steps = 6;
    return spec;
  }

  // Runs the job; the `n`-th allocation fails after the first poll of which `here` holds.
  OutOfMemory death_of(const JobSpec& spec, RecordingSession& session,
                       const std::function<bool()>& here, int64_t n = 1) {
    bool armed = false;
    session.script = [&](const Progress&) -> Command {
      if (!armed && here()) {
        armed = true;
        allocator_.fail_at(n);
      }
      return {};
    };
    try {
      run(spec, session);
      ADD_FAILURE() << "the job succeeded";
    } catch (const OutOfMemoryFailure& failure) {
      EXPECT_EQ(ending_of(failure).exit, Exit::kOutOfMemory);
      EXPECT_EQ(ending_of(failure).code, "out_of_memory");
      EXPECT_TRUE(ending_of(failure).out_of_memory.has_value());
      EXPECT_THAT(failure.what(), HasSubstr("out of memory"));
      EXPECT_THAT(failure.what(), Not(HasSubstr("Allocator"))) << "no stack, no internals";
      EXPECT_TRUE(allocator_.failed());
      allocator_.fail_at(0);
      return failure.post_mortem();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    allocator_.fail_at(0);
    return {};
  }
  // The `poll`-th poll of update 3: 1 before it, then one after each of its two micro-batches.
  std::function<bool()> at_poll(const RecordingSession& session, int poll) {
    polls_ = 0;
    return [this, &session, poll] {
      const bool third = session.last.step == 2 && session.phases.back() == Phase::kTraining;
      return third && ++polls_ == poll;
    };
  }
  std::function<bool()> in_phase(const RecordingSession& session, Phase phase) {
    return [&session, phase] { return session.phases.back() == phase; };
  }
  static json event_of(const RecordingSession& session) {
    const auto events = session.data("out_of_memory");
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? json() : events[0];
  }
  static Event last_event(const RecordingSession& session) {
    return session.events.empty() ? Event() : session.events.back();
  }

  FailingAllocator& allocator_;
  int polls_ = 0;
  int64_t longest_row_ = 0;
};

TEST_F(OutOfMemoryTest, TheForwardPassIsTriedAgainWithHalfTheMicroBatch) {
  RecordingSession session;
  const OutOfMemory out = death_of(job(), session, at_poll(session, 2));
  EXPECT_EQ(out.where, MemoryPlace::kForward);
  EXPECT_EQ(out.step, 2);
  EXPECT_EQ(out.micro_batch_size, 2);
  EXPECT_EQ(out.max_seq_length, 64);
  EXPECT_GE(out.longest_row_tokens, 3);
  EXPECT_LE(out.longest_row_tokens, 40);
  EXPECT_GT(out.peak_memory_bytes, 10 << 20);
  EXPECT_EQ(out.retry_micro_batch_size, 1);
  const json event = event_of(session);
  EXPECT_EQ(event.at("where"), "WHERE_FORWARD");
  EXPECT_EQ(event.at("longestRowTokens"), std::to_string(out.longest_row_tokens));
  EXPECT_EQ(event.at("peakMemoryBytes"), std::to_string(out.peak_memory_bytes));
  EXPECT_EQ(event.at("retryWith").at("hyperparameters.micro_batch_size"), 1);
  EXPECT_EQ(last_event(session).level, Event::Level::kWarn);
  EXPECT_THAT(last_event(session).message, HasSubstr("in the forward pass after 2 updates: peak "));
  EXPECT_THAT(last_event(session).message,
              HasSubstr("the next attempt has micro_batch_size 1 and the same batch_size"));
}

// The allocation that fails moves on through a micro-batch: forward, then backward.
TEST_F(OutOfMemoryTest, TheBackwardPassFollowsTheForwardPass) {
  JobSpec spec = job();
  int64_t n = 1;
  std::optional<OutOfMemory> found;
  for (int run = 0; run < 60 && !found; ++run, n += 1 + n / 3) {
    RecordingSession session;
    const OutOfMemory out = death_of(spec, session, at_poll(session, 2), n);
    ASSERT_FALSE(HasFailure());
    if (out.where == MemoryPlace::kBackward) {
      found = out;
      EXPECT_EQ(event_of(session).at("where"), "WHERE_BACKWARD");
    } else {
      EXPECT_EQ(out.where, MemoryPlace::kForward) << "allocation " << n;
    }
  }
  ASSERT_TRUE(found) << "never in a backward pass";
  EXPECT_GT(n, 10) << "a forward pass allocates";
  EXPECT_GT(found->longest_row_tokens, 0);
}

TEST_F(OutOfMemoryTest, AfterTheLastMicroBatchItIsTheOptimizer) {
  RecordingSession session;
  const OutOfMemory out = death_of(job(), session, at_poll(session, 3));
  EXPECT_EQ(out.where, MemoryPlace::kOptimizer);
  EXPECT_EQ(out.step, 2);
  EXPECT_EQ(out.longest_row_tokens, longest_row_) << "of all rows, none is computed";
}

TEST_F(OutOfMemoryTest, EvaluationsAreNoTraining) {
  write_rows(directory_ / "validation.jsonl", tiny_rows(100, 40, 78));  // several batches
  RecordingSession session;
  const OutOfMemory out = death_of(job(), session, in_phase(session, Phase::kEvaluating));
  EXPECT_EQ(out.where, MemoryPlace::kEvaluation);
  EXPECT_EQ(out.step, 0);
  EXPECT_THAT(last_event(session).message, HasSubstr("while the model was evaluated"));
}

TEST_F(OutOfMemoryTest, ChoosingHeadsTrainsNothingEither) {
  RecordingSession session;
  const OutOfMemory out = death_of(job(), session, in_phase(session, Phase::kSelectingHeads));
  EXPECT_EQ(out.where, MemoryPlace::kEvaluation);
}

// No micro-batch was chosen, so none can be said; the scheduler tries once more all the same.
TEST_F(OutOfMemoryTest, WhileTheModelIsLoadedThereIsNoMicroBatch) {
  RecordingSession session;
  const OutOfMemory out = death_of(job(), session, in_phase(session, Phase::kLoadingModel));
  EXPECT_EQ(out.where, MemoryPlace::kBefore);
  EXPECT_EQ(out.micro_batch_size, 0);
  EXPECT_FALSE(out.retry_micro_batch_size);
  EXPECT_EQ(event_of(session).at("where"), "WHERE_UNSPECIFIED");
  EXPECT_THAT(last_event(session).message, HasSubstr("while model and rows were loaded"));
}

TEST_F(OutOfMemoryTest, AMicroBatchOfOneCannotBeHalved) {
  JobSpec spec = job();
  spec.hyperparameters.micro_batch_size = 1;
  RecordingSession session;
  const OutOfMemory out = death_of(spec, session, at_poll(session, 2));
  EXPECT_EQ(out.micro_batch_size, 1);
  EXPECT_FALSE(out.retry_micro_batch_size);
  EXPECT_FALSE(event_of(session).contains("retryWith"));
  EXPECT_EQ(last_event(session).level, Event::Level::kError);
}

TEST_F(OutOfMemoryTest, TheSecondTryIsTheLast) {
  JobSpec spec = job();
  spec.hyperparameters.micro_batch_size = 4;
  spec.oom_retries = 1;
  RecordingSession session;
  const OutOfMemory out = death_of(spec, session, at_poll(session, 2));
  EXPECT_EQ(out.micro_batch_size, 2) << "half of what was asked for";
  EXPECT_FALSE(out.retry_micro_batch_size);
  EXPECT_EQ(last_event(session).level, Event::Level::kError);
}

// Half the micro-batch, the same batch: the same updates but for rounding.
TEST_F(OutOfMemoryTest, TheSecondTryDoesTheSameUpdates) {
  RecordingSession first, second;
  run(job("first"), first);
  JobSpec halved = job("second");
  halved.oom_retries = 1;
  run(halved, second);
  const auto expected = first.numbers("metrics", "trainLoss");
  const auto found = second.numbers("metrics", "trainLoss");
  ASSERT_EQ(found.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

}  // namespace
}  // namespace dex::train::testing
