// What an attempt says of a trainer that ran out of memory, and of a probe (jobs.md §6).
#include <gtest/gtest.h>

#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

class SlotMemoryTest : public SlotTest {
 protected:
  iv1::FinishRequest finish_of(const std::string& behaviour, const std::string& kind = "finetune",
                               uint32_t micro_batch_size = 0) {
    iv1::ClaimedJob job = job_of(behaviour);
    job.set_kind(kind);
    auto& gate = *job.mutable_spec()->add_gates();  // a probe measures none
    gate.mutable_evaluation()->mutable_perplexity()->set_file("file-1");
    if (micro_batch_size > 0) {
      job.mutable_spec()->mutable_hyperparameters()->set_micro_batch_size(micro_batch_size);
      job.mutable_spec()->mutable_hyperparameters()->set_batch_size(16);
    }
    scheduler_.offer(job);
    start();
    return finished();
  }
};

TEST_F(SlotMemoryTest, OutOfMemoryTravelsWithItsPostMortem) {
  const auto finish = finish_of("oom-8");
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_OOM) << "it is tried once more";
  EXPECT_EQ(finish.code(), "out_of_memory");
  EXPECT_EQ(finish.tenant(), "default");
  EXPECT_EQ(finish.out_of_memory().where(), dex::v1::OutOfMemory::WHERE_BACKWARD);
  EXPECT_EQ(finish.out_of_memory().longest_row_tokens(), 512);
  EXPECT_EQ(finish.out_of_memory().micro_batch_size(), 8U);
}

TEST_F(SlotMemoryTest, AMicroBatchOfOneCannotBeHalvedSoItIsFinal) {
  const auto finish = finish_of("oom-1");
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(finish.code(), "out_of_memory");
  EXPECT_EQ(finish.out_of_memory().micro_batch_size(), 1U);
}

// Of a trainer that left nothing but its exit code, the job's spec says it.
TEST_F(SlotMemoryTest, WithoutAFrameTheSpecDecides) {
  EXPECT_EQ(finish_of("exit-13", "finetune", 1).outcome(), iv1::OUTCOME_FAIL_FINAL);
}

TEST_F(SlotMemoryTest, WithoutAFrameALargerMicroBatchIsTriedAgain) {
  EXPECT_EQ(finish_of("exit-13", "finetune", 2).outcome(), iv1::OUTCOME_OOM);
}

TEST_F(SlotMemoryTest, AProbesTrainerDoesOneUpdateAndItsGatesAreNotMeasured) {
  const auto finish = finish_of("probe-only", kProbe);
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  EXPECT_EQ(finish.result().memory_probe().peak_memory_bytes(), 123);
}

TEST_F(SlotMemoryTest, OnlyAProbeIsToldToDoOneUpdate) {
  EXPECT_EQ(finish_of("probe-only").outcome(), iv1::OUTCOME_FAIL_FINAL);
}

TEST_F(SlotMemoryTest, AProbeHasNoSecondTry) {
  EXPECT_EQ(finish_of("oom-8", kProbe).outcome(), iv1::OUTCOME_FAIL_FINAL);
}

}  // namespace
}  // namespace dex::agent
