#include "scheduler/server/metrics_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "scheduler/server/result_files.h"

namespace dex::server {
namespace {

class MetricsTableTest : public testing::Test {
 protected:
  void train(uint32_t step, double loss, double norm = 0.5) {
    v1::FineTuningEvent event;
    auto& metrics = *event.mutable_metrics();
    metrics.set_step(step);
    metrics.set_epoch(step / 10.0);
    metrics.set_train_loss(loss);
    metrics.set_grad_norm(norm);
    metrics.set_learning_rate(1e-4);
    metrics.set_trained_tokens(100 * step);
    metrics.set_tokens_per_second(2000);
    metrics.set_lambda_mean(0.25);
    table_.add(event);
  }
  void evaluate(uint32_t step, double loss) {
    v1::FineTuningEvent event;
    event.mutable_eval_complete()->set_step(step);
    event.mutable_eval_complete()->set_valid_loss(loss);
    event.mutable_eval_complete()->set_token_accuracy(0.75);
    event.mutable_eval_complete()->set_branch_ratio(0.125);
    table_.add(event);
  }
  MetricsTable table_;
};

TEST_F(MetricsTableTest, ARowAnUpdateWithWhatWasReportedOfIt) {
  evaluate(0, 3.5);
  train(1, 3.25);
  train(2, 2.5, std::nan(""));
  evaluate(2, 2.25);
  train(2, 2.5, std::nan(""));  // once more, as the trainer has it for the figures by layer
  v1::FineTuningEvent other;
  other.mutable_warning()->set_code("x");
  table_.add(other);
  EXPECT_EQ(table_.csv(),
            "step,epoch,train_loss,valid_loss,valid_mean_token_accuracy,grad_norm,learning_rate,"
            "trained_tokens,tokens_per_second,lambda_mean,branch_ratio\n"
            "0,,,3.5,0.75,,,,,,0.125\n"
            "1,0.1,3.25,,,0.5,0.0001,100,2000.0,0.25,\n"
            "2,0.2,2.5,2.25,0.75,,0.0001,200,2000.0,0.25,0.125\n");
}

TEST_F(MetricsTableTest, LinesSayTheSameAndTheLayers) {
  v1::FineTuningEvent event;
  event.mutable_metrics()->set_step(3);
  event.mutable_metrics()->set_train_loss(1.5);
  event.mutable_metrics()->add_lambda(0.5f);
  event.mutable_metrics()->add_branch_ratio(std::nanf(""));
  event.mutable_metrics()->add_branch_ratio(0.25f);
  table_.add(event);
  const std::string text = table_.jsonl();
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const auto row = nlohmann::json::parse(text);
  EXPECT_EQ(row.at("step"), 3);
  EXPECT_EQ(row.at("train_loss"), 1.5);
  EXPECT_FALSE(row.contains("valid_loss"));
  EXPECT_EQ(row.at("lambda_by_layer"), nlohmann::json::array({0.5}));
  EXPECT_EQ(row.at("branch_ratio_by_layer"), nlohmann::json::array({nullptr, 0.25}));
}

TEST_F(MetricsTableTest, WhatARollbackLostIsNoRow) {
  for (uint32_t step = 1; step <= 4; ++step) train(step, 9);
  evaluate(4, 9);
  train(3, 1);  // from the checkpoint of update 2
  std::istringstream lines(table_.csv());
  std::string line, steps;
  std::getline(lines, line);
  while (std::getline(lines, line)) steps += line.substr(0, line.find(',')) + " ";
  EXPECT_EQ(steps, "1 2 3 ");
  EXPECT_NE(table_.csv().find("\n3,0.3,1.0,"), std::string::npos);
}

TEST(ResultFilesTest, IdsLeadBackToTheirJobAndToNothingElse) {
  const std::string job = "ftjob-01arz3ndektsv4rrffq69g5fav";
  for (const auto kind : {ResultFiles::Kind::kCsv, ResultFiles::Kind::kJsonl}) {
    const auto named = ResultFiles::named(ResultFiles::id(job, kind));
    ASSERT_TRUE(named.has_value());
    EXPECT_EQ(named->job, job);
    EXPECT_EQ(named->kind, kind);
  }
  EXPECT_NE(ResultFiles::id(job, ResultFiles::Kind::kCsv),
            ResultFiles::id(job, ResultFiles::Kind::kJsonl));
  EXPECT_FALSE(ResultFiles::named("file-01arz3ndektsv4rrffq69g5fav")) << "an uploaded one";
  for (const char* id : {"", "file-", "file-1", "ftjob-01arz3ndektsv4rrffq69g5fav",
                         "file-31arz3ndektsv4rrffq69g5fav", "file-1/../../etc/passwd"}) {
    EXPECT_FALSE(ResultFiles::named(id)) << id;
  }
}

TEST(ResultFilesTest, OnlyAnEndedFineTuningJobThatTrainedHasThem) {
  store::JobRecord job;
  job.id = "ftjob-01arz3ndektsv4rrffq69g5fav";
  job.kind = "finetune";
  job.state = "RUNNING";
  v1::Progress progress;
  progress.set_step(5);
  job.progress = progress.SerializeAsString();
  EXPECT_TRUE(ResultFiles::of(job).empty());
  for (const char* state : {"SUCCEEDED", "FAILED", "CANCELLED"}) {
    job.state = state;
    EXPECT_EQ(ResultFiles::of(job).size(), 2U) << state;
  }
  job.progress.clear();
  EXPECT_TRUE(ResultFiles::of(job).empty()) << "cancelled before its first update";
  job.state = "SUCCEEDED";
  job.kind = "evaluation";
  EXPECT_TRUE(ResultFiles::of(job).empty());
}

}  // namespace
}  // namespace dex::server
