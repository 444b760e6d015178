// Issue 3, "Bad input": each gets a clear error that names the field, and nothing is stored.
#include <limits>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class BadInputTest : public SchedulerTest {
 protected:
  BadInputTest() : file_(upload_good()) {}

  void refused(const v1::FineTuningJobSpec& spec, base::Code code, const std::string& reason,
               const std::string& field) {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec;
    const auto status = create(request).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    expect_refused(status, reason, field);
    const auto list = call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningJobs,
                           v1::ListFineTuningJobsRequest{});
    EXPECT_EQ(list->jobs_size(), 0);
  }
  void refused(const v1::FineTuningJobSpec& spec, const std::string& reason,
               const std::string& field) {
    refused(spec, base::Code::kInvalidArgument, reason, field);
  }

  const std::string file_;
};

TEST_F(BadInputTest, UnknownPreset) {
  auto bad = spec(file_);
  bad.mutable_dex()->set_preset("huge");
  refused(bad, "UNKNOWN_PRESET", "dex.preset");
}

TEST_F(BadInputTest, UnknownHyperparameter) {
  auto bad = spec(file_);
  auto* hyper = bad.mutable_hyperparameters();
  hyper->GetReflection()->MutableUnknownFields(hyper)->AddVarint(999, 1);
  refused(bad, "UNKNOWN_FIELD", "");
}

TEST_F(BadInputTest, UnusedHyperparameter) {
  auto bad = spec(file_);
  bad.mutable_dex()->set_preset("small");  // cosine
  bad.mutable_dex()->mutable_lambda()->set_learn_init(0.5);
  refused(bad, "UNUSED_FIELD", "dex.lambda.learn_init");
}

TEST_F(BadInputTest, LearningRateNotAboveZero) {
  for (const double rate : {0.0, -1e-4}) {
    auto bad = spec(file_);
    bad.mutable_hyperparameters()->set_learning_rate(rate);
    refused(bad, "VALUE_OUT_OF_RANGE", "hyperparameters.learning_rate");
  }
}

TEST_F(BadInputTest, LearningRateNotANumber) {
  auto bad = spec(file_);
  bad.mutable_hyperparameters()->set_learning_rate(std::numeric_limits<double>::quiet_NaN());
  refused(bad, "INVALID_FIELD", "hyperparameters.learning_rate");
}

TEST_F(BadInputTest, SequenceLongerThanTheModel) {
  auto bad = spec(file_);
  bad.mutable_hyperparameters()->set_max_seq_length(8193);
  refused(bad, "VALUE_OUT_OF_RANGE", "hyperparameters.max_seq_length");
}

TEST_F(BadInputTest, UnknownModel) {
  auto bad = spec(file_);
  bad.set_model("gpt-99");
  refused(bad, base::Code::kNotFound, "MODEL_NOT_FOUND", "model");
}

TEST_F(BadInputTest, ModelIsNeverAPath) {
  auto bad = spec(file_);
  bad.set_model("../models/small");
  refused(bad, base::Code::kNotFound, "MODEL_NOT_FOUND", "model");
}

TEST_F(BadInputTest, UnknownFile) {
  auto bad = spec("file-00000000000000000000000000");
  refused(bad, base::Code::kNotFound, "RESOURCE_NOT_FOUND", "training_file");
}

TEST_F(BadInputTest, InvalidFile) {
  const auto file = upload("this is not JSON\n");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ(file->state(), v1::FILE_STATE_INVALID);
  refused(spec(file->id()), base::Code::kFailedPrecondition, "FILE_INVALID", "training_file");
  auto bad = spec(file_);
  bad.set_validation_file(file->id());
  refused(bad, base::Code::kFailedPrecondition, "FILE_INVALID", "validation_file");
  bad = spec(file_);
  bad.mutable_watchdog()->mutable_base_guard()->set_kl_max(0.1);
  bad.mutable_watchdog()->mutable_base_guard()->set_probe_file(file->id());
  refused(bad, base::Code::kFailedPrecondition, "FILE_INVALID", "watchdog.base_guard.probe_file");
  bad = spec(file_);
  bad.mutable_dex()->mutable_head_selection()->mutable_calibration()->set_file(file->id());
  refused(bad, base::Code::kFailedPrecondition, "FILE_INVALID",
          "dex.head_selection.calibration.file");
}

TEST_F(BadInputTest, AllBadFieldsAtOnce) {
  auto bad = spec(file_);
  bad.mutable_hyperparameters()->set_learning_rate(-1);
  bad.mutable_hyperparameters()->set_n_epochs(1000);
  bad.set_priority(77);
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = bad;
  const auto status = create(request).status();
  EXPECT_EQ(status.violations().size(), 3U) << status.to_string();
}

TEST_F(BadInputTest, MissingFields) {
  v1::CreateFineTuningJobRequest request;
  EXPECT_EQ(create(request).status().reason(), "MISSING_FIELD");
  request.mutable_spec()->set_model("small-model");
  EXPECT_EQ(create(request).status().reason(), "MISSING_FIELD");
  request.clear_spec();
  *request.mutable_spec() = spec(file_);
  request.set_request_id(std::string(65, 'x'));
  EXPECT_EQ(create(request).status().violations().at(0).field, "request_id");
}

TEST_F(BadInputTest, FullQueue) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(file_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(create(request).ok());
  const auto status = create(request).status();
  EXPECT_EQ(status.code(), base::Code::kResourceExhausted);
  EXPECT_EQ(status.reason(), "QUOTA_EXCEEDED");
}

TEST_F(BadInputTest, UnknownJob) {
  for (const std::string id : {"ftjob-00000000000000000000000000", "../../etc/passwd", "x"}) {
    v1::GetFineTuningJobRequest request;
    request.set_id(id);
    const auto status =
        call(*jobs_, &v1::FineTuningService::Stub::GetFineTuningJob, request).status();
    EXPECT_EQ(status.reason(), "RESOURCE_NOT_FOUND") << id;
  }
}

TEST_F(BadInputTest, WorkersMayNotForgeStateEvents) {
  enlist();
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(file_);
  const auto created = create(request);
  const auto job = claim().job();
  v1::FineTuningEvent forged;
  forged.set_type("job_complete");
  beat(job, 1, "w1", {forged});
  v1::ListFineTuningEventsRequest list;
  list.set_id(created->id());
  EXPECT_EQ(call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningEvents, list)->events_size(),
            2);
}

}  // namespace
}  // namespace dex::server
