#include "services/gateway/openai/job_objects.h"

#include <gtest/gtest.h>

namespace dex::gateway::openai {
namespace {

v1::FineTuningJob job(v1::JobState state) {
  v1::FineTuningJob made;
  made.set_id("ftjob-01jd");
  made.set_state(state);
  made.set_model("smol");
  made.set_base_model("smol");
  made.set_suffix("Mine");
  made.set_seed(7);
  made.set_trained_tokens(50);
  made.mutable_create_time()->set_seconds(100);
  made.mutable_end_time()->set_seconds(200);
  auto& spec = *made.mutable_effective_config()->mutable_spec();
  spec.mutable_dex()->set_preset("code@1");
  spec.mutable_hyperparameters()->set_n_epochs(3);
  spec.mutable_hyperparameters()->set_max_steps(9);
  return made;
}

TEST(JobObjectTest, EachStateHasOpenAisWord) {
  const std::pair<v1::JobState, std::string> words[] = {
      {v1::JOB_STATE_QUEUED, "queued"},       {v1::JOB_STATE_VALIDATING_FILES, "validating_files"},
      {v1::JOB_STATE_RUNNING, "running"},     {v1::JOB_STATE_PAUSING, "running"},
      {v1::JOB_STATE_CANCELLING, "running"},  {v1::JOB_STATE_PAUSED, "paused"},
      {v1::JOB_STATE_SUCCEEDED, "succeeded"}, {v1::JOB_STATE_FAILED, "failed"},
      {v1::JOB_STATE_CANCELLED, "cancelled"}, {v1::JOB_STATE_EXPIRED, "failed"}};
  EXPECT_EQ(std::size(words), static_cast<size_t>(v1::JobState_ARRAYSIZE) - 1);
  for (const auto& [state, word] : words) EXPECT_EQ(status_word(state), word);
}

TEST(JobObjectTest, WhatIsNotKnownYetIsNull) {
  const json made = job_object(job(v1::JOB_STATE_QUEUED), "default");
  for (const char* key : {"finished_at", "fine_tuned_model", "trained_tokens", "error",
                          "estimated_finish", "validation_file"}) {
    EXPECT_TRUE(made.at(key).is_null()) << key;
  }
  EXPECT_EQ(made.at("organization_id"), "default");
  EXPECT_EQ(made.at("result_files"), json::array());
  EXPECT_EQ(
      made.at("hyperparameters"),
      json::parse(R"({"n_epochs": 3, "batch_size": null, "learning_rate_multiplier": null})"));
  EXPECT_EQ(made.at("method").at("type"), "dex");
  EXPECT_EQ(made.at("method").at("dex").at("preset"), "code@1");
  EXPECT_EQ(made.at("method").at("dex").at("hyperparameters").at("max_steps"), 9);
  EXPECT_EQ(made.at("dex").at("state"), "queued");
}

TEST(JobObjectTest, AnEndedOneSaysHow) {
  auto failed = job(v1::JOB_STATE_FAILED);
  failed.mutable_error()->set_code("loss_diverged");
  failed.mutable_error()->set_message("it did");
  const json made = job_object(failed, "default");
  EXPECT_EQ(made.at("finished_at"), 200);
  EXPECT_EQ(made.at("error"),
            json::parse(R"({"code": "loss_diverged", "message": "it did", "param": null})"));
  EXPECT_EQ(job_object(job(v1::JOB_STATE_EXPIRED), "x").at("error").at("code"),
            "deadline_exceeded");
}

TEST(EventObjectTest, FiguresAreMetricsWithASentence) {
  v1::FineTuningEvent event;
  event.set_id("ftevent-01jd-12");
  event.set_sequence(12);
  event.set_type("metrics");
  event.set_level(v1::FineTuningEvent::LEVEL_WARN);
  event.mutable_metrics()->set_step(5);
  event.mutable_metrics()->set_train_loss(1.25);
  const json made = event_object(event);
  EXPECT_EQ(made.at("type"), "metrics");
  EXPECT_EQ(made.at("level"), "warn");
  EXPECT_EQ(made.at("message"), "Step 5: training loss=1.2500");
  EXPECT_EQ(made.at("data").at("train_loss"), 1.25);
  EXPECT_EQ(made.at("dex").at("sequence"), 12);
  v1::FineTuningEvent plain;
  plain.set_type("job_start");
  plain.set_message("started");
  EXPECT_EQ(event_object(plain).at("type"), "message");
  EXPECT_EQ(event_object(plain).at("message"), "started");
}

TEST(CheckpointObjectTest, OnlyThePublishedStateCanBeCalled) {
  v1::Checkpoint checkpoint;
  checkpoint.set_id("ftckpt-01jd-4");
  checkpoint.set_job("ftjob-01jd");
  checkpoint.set_step(4);
  checkpoint.set_valid_loss(2.5);
  auto done = job(v1::JOB_STATE_SUCCEEDED);
  done.set_fine_tuned_model("ft:smol:default:mine:01jd");
  done.mutable_metrics()->set_served_step(6);
  json made = checkpoint_object(checkpoint, done, "default");
  EXPECT_EQ(made.at("fine_tuned_model_checkpoint"), "ft:smol:default:mine:01jd:ckpt-step-4");
  EXPECT_EQ(made.at("dex").at("usable"), false);
  EXPECT_EQ(made.at("metrics").at("full_valid_loss"), 2.5);
  EXPECT_FALSE(made.at("metrics").contains("train_loss"));
  checkpoint.set_step(6);
  made = checkpoint_object(checkpoint, done, "default");
  EXPECT_EQ(made.at("fine_tuned_model_checkpoint"), "ft:smol:default:mine:01jd");
  EXPECT_EQ(made.at("dex").at("usable"), true);
}

}  // namespace
}  // namespace dex::gateway::openai
