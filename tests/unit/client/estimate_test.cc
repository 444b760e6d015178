// `dexctl jobs estimate`, by formula and by a probe, against a server that says what it was asked.
#include <gmock/gmock.h>

#include <string>

#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "tests/unit/client/jobs_command.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class EstimatingJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status EstimateFineTuningJob(grpc::ServerContext*,
                                     const v1::EstimateFineTuningJobRequest* request,
                                     v1::Estimate* reply) override {
    asked = request->mode();
    *reply = answer;
    return grpc::Status::OK;
  }
  grpc::Status CreateFineTuningJob(grpc::ServerContext*, const v1::CreateFineTuningJobRequest*,
                                   v1::FineTuningJob* reply) override {
    ++created;
    reply->set_id("ftjob-1");
    return grpc::Status::OK;
  }
  v1::Estimate::Method asked = v1::Estimate::METHOD_UNSPECIFIED;
  v1::Estimate answer;
  int created = 0;
};

class EstimateCommandTest : public JobsCommandTest<EstimatingJobs> {
 protected:
  int run(const std::string& more, const std::string& verb = "estimate") {
    return jobs(verb + " --model small --training-file file-01jd0000000000000000000000" + more);
  }
};

TEST_F(EstimateCommandTest, ByFormulaUnlessAProbeIsAskedFor) {
  jobs_.answer.set_allowed_to_proceed(true);
  EXPECT_EQ(run(""), kDone);
  EXPECT_EQ(jobs_.asked, v1::Estimate::METHOD_UNSPECIFIED);
  EXPECT_THAT(shown_, Not(HasSubstr("measured")));
  auto& probe = *jobs_.answer.mutable_probe();
  probe.set_step_tokens(2048);
  probe.set_step_seconds(4.5);
  probe.set_micro_batch_size(2);
  probe.set_longest_row_tokens(510);
  EXPECT_EQ(run(" --probe"), kDone);
  EXPECT_EQ(jobs_.asked, v1::Estimate::METHOD_PROBE);
  EXPECT_THAT(shown_, HasSubstr("an update of 2048 tokens in 4.5 s; micro-batch 2, longest row 510 "
                                "tokens"));
}

TEST_F(EstimateCommandTest, WhatDoesNotFitComesWithWhatWould) {
  jobs_.answer.add_blockers("a worker tried: out of memory");
  (*jobs_.answer.mutable_nearest_fit())["hyperparameters.micro_batch_size"] = 1;
  (*jobs_.answer.mutable_nearest_fit())["hyperparameters.max_seq_length"] = 256;
  EXPECT_EQ(run(" --probe"), kCapacity);
  EXPECT_THAT(shown_, HasSubstr("a worker tried: out of memory"));
  EXPECT_THAT(shown_, HasSubstr("--set hyperparameters.max_seq_length=256 --set "
                                "hyperparameters.micro_batch_size=1"));
}

TEST_F(EstimateCommandTest, WithAProbeOnlyWhatFitsIsStarted) {
  EXPECT_EQ(run(" --probe --yes", "create"), kCapacity);
  EXPECT_EQ(jobs_.asked, v1::Estimate::METHOD_PROBE);
  EXPECT_EQ(jobs_.created, 0);
  jobs_.answer.set_allowed_to_proceed(true);
  EXPECT_EQ(run(" --probe --yes", "create"), kDone);
  EXPECT_EQ(jobs_.created, 1);
  EXPECT_THROW(run(" --probe --dry-run", "create"), CLI::ParseError);
}

TEST(JobDetailsTest, AnOutOfMemoryErrorNamesTheNearestSettingThatFits) {
  v1::FineTuningJob job;
  job.mutable_error()->set_code("out_of_memory");
  auto& memory = *job.mutable_error()->mutable_out_of_memory();
  (*memory.mutable_nearest_fit())["hyperparameters.micro_batch_size"] = 2;
  std::string text;
  for (const auto& line : job_details(job)) text += line[0] + ": " + line[1] + "\n";
  EXPECT_THAT(text, HasSubstr("nearest that fits: --set hyperparameters.micro_batch_size=2"));
}

}  // namespace
}  // namespace dex::cli
