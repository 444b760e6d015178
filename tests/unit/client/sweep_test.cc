// dexctl jobs sweep and jobs list: what the server is asked for.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "client/cli/exit_code.h"
#include "tests/unit/client/jobs_command.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

class SweptJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status BatchCreateFineTuningJobs(grpc::ServerContext*,
                                         const v1::BatchCreateFineTuningJobsRequest* request,
                                         v1::BatchCreateFineTuningJobsResponse* reply) override {
    asked.push_back(*request);
    for (int i = 0; i < request->sweep(0).values_size(); ++i)
      reply->add_jobs()->set_id(request->validate_only() ? "" : "ftjob-" + std::to_string(i));
    if (!request->validate_only()) reply->set_sweep_id("sweep-1");
    return grpc::Status::OK;
  }
  grpc::Status ListFineTuningJobs(grpc::ServerContext*,
                                  const v1::ListFineTuningJobsRequest* request,
                                  v1::ListFineTuningJobsResponse*) override {
    listed = *request;
    return grpc::Status::OK;
  }
  std::vector<v1::BatchCreateFineTuningJobsRequest> asked;
  v1::ListFineTuningJobsRequest listed;
};

class SweepVerbTest : public JobsCommandTest<SweptJobs> {
 protected:
  int run(const std::string& line) { return jobs(line, Format::kId); }
};

constexpr const char* kSweep =
    "sweep --model small --training-file file-1 --suffix mine --grid seed=1,2 --grid "
    "dex.preset=code ";

TEST_F(SweepVerbTest, AllAreCheckedBeforeTheyAreMade) {
  EXPECT_EQ(run(std::string(kSweep) + "--yes"), kDone) << said_;
  ASSERT_EQ(jobs_.asked.size(), 2u);
  EXPECT_TRUE(jobs_.asked[0].validate_only());
  const auto& made = jobs_.asked[1];
  EXPECT_FALSE(made.validate_only());
  EXPECT_FALSE(made.request_id().empty()) << "a call that is repeated makes no second batch";
  EXPECT_EQ(made.spec().suffix(), "mine");
  ASSERT_EQ(made.sweep_size(), 2);
  EXPECT_EQ(made.sweep(0).path(), "seed");
  EXPECT_EQ(made.sweep(0).values(1).number_value(), 2);
  EXPECT_EQ(made.sweep(1).values(0).string_value(), "code");
  EXPECT_EQ(shown_, "ftjob-0\nftjob-1\n");
  EXPECT_THAT(said_, HasSubstr("dexctl jobs list --metadata sweep_id=sweep-1"));
}

TEST_F(SweepVerbTest, ADryRunMakesNone) {
  EXPECT_EQ(run(std::string(kSweep) + "--dry-run"), kDone) << said_;
  ASSERT_EQ(jobs_.asked.size(), 1u);
  EXPECT_TRUE(jobs_.asked[0].validate_only());
  EXPECT_NE(run("sweep --model small --training-file file-1 --grid seed --yes"), kDone);
  EXPECT_THAT(said_, HasSubstr("--grid must be FIELD=VALUE"));
  EXPECT_EQ(jobs_.asked.size(), 1u);
}

TEST_F(SweepVerbTest, AListIsFilteredByTheServer) {
  EXPECT_EQ(run("list --state running --method lora --metadata sweep_id=sweep-1 --text legal "
                "--created-after 2026-11-30 --limit 5"),
            kDone)
      << said_;
  const auto& filter = jobs_.listed.filter();
  EXPECT_EQ(jobs_.listed.page_size(), 5);
  EXPECT_EQ(filter.states(0), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(filter.method(), "lora");
  EXPECT_EQ(filter.metadata().at("sweep_id"), "sweep-1");
  EXPECT_EQ(filter.text(), "legal");
  EXPECT_TRUE(filter.has_created_after());
  EXPECT_FALSE(filter.has_created_before());
}

}  // namespace
}  // namespace dex::cli
