// What an attempt does with checkpoints: tells the trainer which ones stay, passes requests on, and
// finds another one where that of the job is broken.
#include <gmock/gmock.h>

#include <fstream>

#include "services/base/process_lock.h"
#include "services/base/sha256.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Heard = support::FakeScheduler::Heard;

constexpr const char* kEarlier = "jobs/default/ftjob-1/attempt-4";

class SlotCheckpointTest : public SlotTest {
 protected:
  // A job that goes on from step-7 of an attempt that has left these checkpoints.
  iv1::ClaimedJob resumed(const std::string& behaviour, const std::vector<uint32_t>& left) {
    for (const uint32_t step : left) {
      const auto folder = directory_ / kEarlier / ("step-" + std::to_string(step));
      std::filesystem::create_directories(folder);
      std::ofstream(folder / "MANIFEST.json") << manifest(step);
    }
    iv1::ClaimedJob job = job_of(behaviour);
    job.mutable_checkpoint()->set_uri(std::string(kEarlier) + "/step-7");
    job.mutable_checkpoint()->set_manifest_sha256("ff");
    job.mutable_checkpoint()->set_step(7);
    return job;
  }
  static std::string manifest(uint32_t step) { return R"({"step": )" + std::to_string(step) + "}"; }
  // What the trainer that trained was given: folder, blank, hash.
  std::string given(uint32_t step) {
    return (directory_ / kEarlier / ("step-" + std::to_string(step))).string() + " " +
           base::sha256_hex(manifest(step));
  }
  std::vector<std::string> messages(const std::string& type) {
    std::vector<std::string> found;
    for (const auto& [seq, beat] : scheduler_.heard().stored_beats) {
      for (const auto& event : beat.events()) {
        if (event.type() == type) found.push_back(event.message());
      }
    }
    return found;
  }
};

TEST_F(SlotCheckpointTest, TheTrainerHearsWhichOneTheJobPointsTo) {
  start();
  offer("acknowledged");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

// The beat's effect may be there though its answer is not.
TEST_F(SlotCheckpointTest, TheTrainerHearsWhichOneTheJobMayPointTo) {
  start();
  offer("offered");
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) {
    return !h.stored_beats.empty() && h.stored_beats.rbegin()->second.has_checkpoint();
  }));
  scheduler_.set_outage(support::FakeScheduler::Outage::kAfter);
  // It ends as soon as it has heard, and its slot is free, though nobody has answered yet.
  EXPECT_TRUE(
      support::eventually([this] { return base::lock_file(directory_ / "slot.lock").ok(); }));
  scheduler_.set_outage(support::FakeScheduler::Outage::kNone);
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotCheckpointTest, ARequestReachesTheTrainerOnce) {
  start();
  scheduler_.set_checkpoint_request("ckpt-1");
  offer("asked");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.code();
}

TEST_F(SlotCheckpointTest, ABrokenOneCostsTheStepsSinceTheOneBefore) {
  start();
  scheduler_.offer(resumed("broken-7", {2, 4, 7, 9}));
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_THAT(messages("begins"), ElementsAre(given(4)));
  EXPECT_THAT(messages("warning"),
              ElementsAre(HasSubstr("checkpoint_broken: the checkpoint of step 7 can't be used, "
                                    "training goes on from step 4 (")));
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/step-3");
  const auto claims = scheduler_.heard().claims.size();
  EXPECT_TRUE(scheduler_.wait([&](const Heard& h) { return h.claims.size() > claims; }))
      << "the slot goes on";
}

TEST_F(SlotCheckpointTest, WhereAllAreBrokenTrainingStartsAgain) {
  start();
  scheduler_.offer(resumed("all-broken", {2, 4, 7}));
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_THAT(messages("begins"), ElementsAre(" "));
  EXPECT_THAT(messages("warning"),
              ElementsAre(HasSubstr("from step 4 ("), HasSubstr("from step 2 ("),
                          HasSubstr("from the start (")));
}

TEST_F(SlotCheckpointTest, AWholeOneIsUsedAsTheJobNamesIt) {
  start();
  scheduler_.offer(resumed("broken-9", {2, 7}));
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
  EXPECT_THAT(messages("begins"), ElementsAre((directory_ / kEarlier / "step-7").string() + " ff"));
  EXPECT_TRUE(messages("warning").empty());
}

}  // namespace
}  // namespace dex::agent
