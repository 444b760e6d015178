// The jobs that a batch asks for.

#include "scheduler/core/sweep.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>

namespace dex::core {
namespace {

using testing::HasSubstr;
using Request = v1::BatchCreateFineTuningJobsRequest;

// As clients of the HTTP door write it.
Request request(const std::string& json) {
  Request read;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &read);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return read;
}

std::string refusal(const std::string& json, const std::string& field) {
  const auto status = swept_specs(request(json)).status();
  EXPECT_FALSE(status.ok()) << json;
  if (status.violations().empty()) return "names no field: " + status.to_string();
  EXPECT_EQ(status.violations()[0].field, field);
  return status.reason();
}

TEST(SweepTest, AGridIsEveryCombinationTheLastAxisFastest) {
  const auto jobs = swept_specs(request(R"({
      "spec": {"model": "m", "dex": {"preset": "code"}, "hyperparameters": {"n_epochs": 2}},
      "sweep": [{"path": "hyperparameters.learning_rate", "values": [1e-5, 2e-5]},
                {"path": "seed", "values": [1, "2", 3]}]})"));
  ASSERT_TRUE(jobs.ok()) << jobs.status().to_string();
  ASSERT_EQ(jobs->size(), 6u);
  const auto& second = (*jobs)[1];
  EXPECT_EQ(second.spec.hyperparameters().learning_rate(), 1e-5);
  EXPECT_EQ(second.spec.seed(), 2) << "a number as text, as protobuf JSON has 64-bit ones";
  EXPECT_EQ(second.spec.hyperparameters().n_epochs(), 2u);
  EXPECT_EQ(second.spec.dex().preset(), "code");
  EXPECT_EQ((*jobs)[3].spec.hyperparameters().learning_rate(), 2e-5);
  EXPECT_EQ((*jobs)[3].spec.seed(), 1);
  EXPECT_THAT((*jobs)[3].point, HasSubstr("hyperparameters.learning_rate=2e-05, seed=1"));
}

TEST(SweepTest, EnumsListsAndMessagesReplaceWhatIsThere) {
  const auto jobs = swept_specs(request(R"({
      "spec": {"lora": {"target_modules": ["q_proj"], "r": 4}},
      "sweep": [{"path": "lora.target_modules", "values": [["k_proj", "v_proj"]]},
                {"path": "hyperparameters.lr_scheduler_type", "values": ["LR_SCHEDULER_LINEAR"]},
                {"path": "checkpoints", "values": [{"keep_last": 3}]}]})"));
  ASSERT_TRUE(jobs.ok()) << jobs.status().to_string();
  const auto& spec = jobs->at(0).spec;
  ASSERT_EQ(spec.lora().target_modules_size(), 2);
  EXPECT_EQ(spec.lora().target_modules(0), "k_proj");
  EXPECT_EQ(spec.lora().r(), 4u);
  EXPECT_EQ(spec.hyperparameters().lr_scheduler_type(), v1::Hyperparameters::LR_SCHEDULER_LINEAR);
  EXPECT_EQ(spec.checkpoints().keep_last(), 3u);
}

TEST(SweepTest, SpecsAreTakenAsTheyAre) {
  const auto jobs = swept_specs(request(R"({"specs": [{"model": "a"}, {"model": "b"}]})"));
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->at(1).spec.model(), "b");
  EXPECT_EQ(jobs->at(1).point, "");
}

TEST(SweepTest, WhatMakesNoGridIsRefusedByItsPlace) {
  EXPECT_EQ(refusal("{}", "spec"), "MISSING_FIELD");
  EXPECT_EQ(refusal(R"({"spec": {}})", "sweep"), "MISSING_FIELD");
  EXPECT_EQ(refusal(R"({"spec": {}, "specs": [{}]})", "specs"), "CONFLICTING_FIELDS");
  EXPECT_EQ(refusal(R"({"spec": {}, "sweep": [{"path": "sed", "values": [1]}]})", "sweep[0].path"),
            "UNKNOWN_FIELD");
  EXPECT_EQ(
      refusal(R"({"spec": {}, "sweep": [{"path": "seed.x", "values": [1]}]})", "sweep[0].path"),
      "UNKNOWN_FIELD");
  EXPECT_EQ(
      refusal(R"({"spec": {}, "sweep": [{"path": "seed.", "values": [1]}]})", "sweep[0].path"),
      "UNKNOWN_FIELD");
  EXPECT_EQ(
      refusal(R"({"spec": {}, "sweep": [{"path": "seed", "values": []}]})", "sweep[0].values"),
      "MISSING_FIELD");
  EXPECT_EQ(refusal(R"({"spec": {}, "sweep": [{"path": "seed", "values": [1]},
                                              {"path": "seed", "values": [2]}]})",
                    "sweep[1].path"),
            "CONFLICTING_FIELDS");
  EXPECT_EQ(refusal(R"({"spec": {}, "sweep": [{"path": "lora.r", "values": [1]},
                                              {"path": "lora", "values": [{}]}]})",
                    "sweep[1].path"),
            "CONFLICTING_FIELDS");
  EXPECT_EQ(refusal(R"({"spec": {}, "sweep": [{"path": "seed", "values": [1, "many"]}]})",
                    "sweep[0].values[1]"),
            "INVALID_FIELD");
}

TEST(SweepTest, SixtyFourJobsAndNoMore) {
  Request asked = request(R"({"spec": {"model": "m"}, "sweep": [{"path": "seed"}]})");
  auto& values = *asked.mutable_sweep(0);
  for (int i = 0; i < kMostSweptJobs; ++i) values.add_values()->set_number_value(i);
  EXPECT_EQ(swept_specs(asked)->size(), 64u);
  values.add_values()->set_number_value(64);
  EXPECT_EQ(swept_specs(asked).status().reason(), "VALUE_OUT_OF_RANGE");
  Request specs;
  for (int i = 0; i < kMostSweptJobs + 1; ++i) specs.add_specs();
  EXPECT_EQ(swept_specs(specs).status().reason(), "VALUE_OUT_OF_RANGE");
}

}  // namespace
}  // namespace dex::core
