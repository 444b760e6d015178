#include "services/gateway/openai/job_request.h"

#include <gmock/gmock.h>

namespace dex::gateway::openai {
namespace {

using ::testing::HasSubstr;

base::Result<v1::CreateFineTuningJobRequest> read_job(const std::string& more) {
  return read_create_job(json::parse(R"({"model": "m", "training_file": "file-1")" +
                                     (more.empty() ? "" : ", " + more) + "}"));
}
std::string job_refusal(const std::string& more) {
  const auto made = read_job(more);
  return made.ok() ? "OK" : made.status().reason() + " " + made.status().violations().at(0).field;
}

TEST(ReadCreateJobTest, WhatTheOpenAiPackageSends) {
  const auto made = read_job(
      R"("suffix": "s", "seed": 7, "validation_file": "file-2", "metadata": {"a": "b"}, "integrations": null,
         "method": {"type": "supervised", "supervised": {"hyperparameters":
             {"n_epochs": 2, "batch_size": "auto", "learning_rate_multiplier": 0.5}}})");
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto& spec = made.value().spec();
  EXPECT_TRUE(spec.has_dex()) << "supervised is dex";
  EXPECT_EQ(spec.hyperparameters().n_epochs(), 2U);
  EXPECT_FALSE(spec.hyperparameters().has_batch_size()) << "auto is unset";
  EXPECT_EQ(spec.hyperparameters().learning_rate_multiplier(), 0.5);
  EXPECT_EQ(spec.suffix(), "s");
  EXPECT_EQ(spec.seed(), 7);
  EXPECT_EQ(spec.metadata().at("a"), "b");
  EXPECT_EQ(spec.validation_file(), "file-2");
}

TEST(ReadCreateJobTest, OurMethodsAndTheRestOfTheSpec) {
  const auto made = read_job(
      R"("method": {"type": "lora", "lora": {"r": 4, "hyperparameters": {"max_steps": 9}}},
         "dex": {"priority": 2, "evaluation": {"every_steps": 5}, "hyperparameters": {"packing": false}})");
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made.value().spec().lora().r(), 4U);
  EXPECT_EQ(made.value().spec().hyperparameters().max_steps(), 9U);
  EXPECT_FALSE(made.value().spec().hyperparameters().packing());
  EXPECT_TRUE(made.value().spec().hyperparameters().has_packing());
  EXPECT_EQ(made.value().spec().priority(), 2U);
}

TEST(ReadCreateJobTest, ASecondPlaceForOneValueIsAConflict) {
  const std::string inner =
      R"("method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}})";
  EXPECT_EQ(job_refusal(inner + R"(, "hyperparameters": {"n_epochs": 2})"),
            "CONFLICTING_FIELDS hyperparameters");
  EXPECT_TRUE(read_job(R"("hyperparameters": {"n_epochs": 2})").ok());
  EXPECT_EQ(job_refusal(R"("seed": 1, "dex": {"seed": 1})"), "CONFLICTING_FIELDS dex.seed");
  EXPECT_EQ(job_refusal(inner + R"(, "dex": {"hyperparameters": {"n_epochs": 3}})"),
            "CONFLICTING_FIELDS dex.hyperparameters.n_epochs");
  EXPECT_EQ(job_refusal(inner + R"(, "dex": {"lora": {}})"), "CONFLICTING_FIELDS dex.dex");
}

TEST(ReadCreateJobTest, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(job_refusal(R"("sufix": "s")"), "UNKNOWN_FIELD sufix");
  EXPECT_EQ(job_refusal(R"("hyperparameters": {"epochs": "auto"})"),
            "UNKNOWN_FIELD hyperparameters.epochs");
  EXPECT_EQ(job_refusal(R"("dex": {"dex": {"presets": "code"}})"), "UNKNOWN_FIELD dex.dex.presets");
  EXPECT_THAT(read_job(R"("dex": {"dex": {"presets": "code"}})").status().message(),
              HasSubstr("did you mean preset?"));
  EXPECT_EQ(job_refusal(R"("dex": {"dex": {"form": "FORM_PAPR"}})"), "INVALID_FIELD dex");
  EXPECT_EQ(job_refusal(R"("method": {"type": "dpo", "dpo": {}})"),
            "UNSUPPORTED_PARAMETER method.type");
  EXPECT_EQ(job_refusal(R"("method": {"type": "magic"})"), "INVALID_FIELD method.type");
  EXPECT_EQ(job_refusal(R"("method": {"type": "lora", "dex": {}})"), "UNKNOWN_FIELD method.dex");
  EXPECT_EQ(job_refusal(R"("integrations": [{"type": "wandb"}])"),
            "UNSUPPORTED_PARAMETER integrations");
  EXPECT_EQ(job_refusal(R"("metadata": {"a": 1})"), "INVALID_FIELD metadata.a");
}

TEST(ReadCreateJobTest, ModelAndFileMustBeGivenAndBothAreNamed) {
  const auto status = read_create_job(json::object()).status();
  EXPECT_EQ(status.reason(), "MISSING_FIELD");
  ASSERT_EQ(status.violations().size(), 2U);
  EXPECT_EQ(status.violations()[1].field, "training_file");
}

}  // namespace
}  // namespace dex::gateway::openai
