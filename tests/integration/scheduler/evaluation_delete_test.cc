// What goes with an evaluation that its owner deletes, and when it may go.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;

class EvaluationDeleteTest : public EvaluationTest {
 protected:
  base::Result<v1::DeleteEvaluationResponse> remove(const std::string& id,
                                                    const std::string& request_id = "",
                                                    bool* replayed = nullptr) {
    v1::DeleteEvaluationRequest request;
    request.set_id(id);
    request.set_request_id(request_id);
    return call(*evaluations_, &EvaluationStub::DeleteEvaluation, request, 20000, replayed);
  }
  // One that has published results and samples, and left a step and a log beside them.
  std::string published() {
    enlist();
    const std::string id = created().id();
    const auto job = claim().job();
    const fs::path attempt = directory_ / "data" / job.attempt_dir();
    EXPECT_EQ(publish(job, "w1", {{"samples-1.jsonl", "{}\n"}}), "SUCCEEDED");
    fs::create_directories(attempt / "step-1");
    std::ofstream(attempt / "step-1/results.json") << "{}";
    std::ofstream(attempt / "evaluator.log") << "lines";
    return id;
  }
  fs::path folder_of(const std::string& id) const { return directory_ / "data/jobs/default" / id; }
};

TEST_F(EvaluationDeleteTest, RecordEventsResultsAndSamplesGo) {
  const std::string id = published();
  const std::string other = created().id();
  ASSERT_TRUE(fs::exists(folder_of(id)));
  const auto deleted = remove(id);
  ASSERT_TRUE(deleted.ok()) << deleted.status().to_string();
  EXPECT_EQ(deleted->id(), id);
  EXPECT_FALSE(fs::exists(folder_of(id)));
  EXPECT_EQ(get_evaluation(id).status().reason(), "RESOURCE_NOT_FOUND");
  v1::ListEvaluationSamplesRequest asked;
  asked.set_id(id);
  EXPECT_EQ(samples(asked).status().reason(), "RESOURCE_NOT_FOUND");
  for (const char* key : {"job:", "spec:", "log:", "ckpts:"})
    EXPECT_EQ(redis_.call({"EXISTS", "dex:{s0}:" + (key + id)}).as_int(), 0) << key;
  EXPECT_EQ(redis_.call({"ZSCORE", "dex:{s0}:tjobs:default", id}).text, "");
  const auto left =
      call(*evaluations_, &EvaluationStub::ListEvaluations, v1::ListEvaluationsRequest{});
  ASSERT_EQ(left->evaluations_size(), 1);
  EXPECT_EQ(left->evaluations(0).id(), other);
}

TEST_F(EvaluationDeleteTest, OnlyOneThatHasEndedGoes) {
  enlist();
  const std::string id = created().id();
  EXPECT_EQ(remove(id).status().reason(), "JOB_STATE_CONFLICT");
  const auto job = claim().job();
  const auto running = remove(id).status();
  EXPECT_EQ(running.reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(running.code(), base::Code::kFailedPrecondition);
  EXPECT_TRUE(cancel_evaluation(id).ok());
  EXPECT_EQ(remove(id).status().reason(), "JOB_STATE_CONFLICT") << "it is being cancelled";
  EXPECT_EQ(finish(job, iv1::OUTCOME_CANCELLED), "CANCELLED");
  EXPECT_TRUE(remove(id).ok()) << "a cancelled one has nothing published, and goes too";
}

TEST_F(EvaluationDeleteTest, ARepeatIsAReplay) {
  const std::string id = published(), other = created().id();
  bool replayed = true;
  ASSERT_TRUE(remove(id, "gone", &replayed).ok());
  EXPECT_FALSE(replayed);
  const auto again = remove(id, "gone", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->id(), id);
  EXPECT_EQ(remove(other, "gone").status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(remove(id).status().reason(), "RESOURCE_NOT_FOUND");
}

// Of a scheduler that ended between the two steps of a purge.
TEST_F(EvaluationDeleteTest, OneThatIsMarkedAlreadyIsDeletedToItsEnd) {
  const std::string id = published();
  redis_.call({"HSET", "dex:{s0}:job:" + id, "purging", "1"});
  ASSERT_TRUE(remove(id).ok());
  EXPECT_FALSE(fs::exists(folder_of(id)));
  EXPECT_EQ(get_evaluation(id).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(EvaluationDeleteTest, WhatIsNoEvaluationIsNotThere) {
  EXPECT_EQ(remove(create_good().id()).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(remove("eval-" + std::string(26, '0')).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(remove("").status().reason(), "MISSING_FIELD");
}

}  // namespace
}  // namespace dex::server
