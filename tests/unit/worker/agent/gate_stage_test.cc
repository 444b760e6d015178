// What gates that compare with another adapter say where there is nothing to compare.
#include "worker/agent/gate_stage.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace dex::agent {
namespace {

using testing::HasSubstr;
using testing::Not;
using v1::Gate;

constexpr const char* kOtherAdapter = "ft:tiny:default:old:00";

iv1::ClaimedJob compared_job() {
  iv1::ClaimedJob job;
  job.set_adapter_id("ft:tiny:default::01");
  job.mutable_spec()->set_model("tiny");
  Gate& gate = *job.mutable_spec()->add_gates();
  gate.set_name("better");
  gate.set_task("perplexity");
  gate.set_metric("loss");
  gate.set_against(Gate::AGAINST_ADAPTER);
  gate.set_adapter(kOtherAdapter);
  gate.set_op(Gate::OP_LE);
  gate.set_threshold(0);
  gate.set_use(Gate::USE_BOUND);
  gate.set_on_fail(Gate::ON_FAIL_BLOCK_ALIAS);
  gate.mutable_evaluation()->mutable_perplexity()->set_file("file-1");
  return job;
}

// What an evaluator left that measured these, and kept the numbers of the new adapter alone.
GateReport report_of(const std::vector<std::string>& subjects, int64_t left_out) {
  GateReport report;
  auto& result = *report.report.add_results();
  for (const std::string& subject : subjects) {
    auto& row = *result.add_rows();
    row.set_subject(subject);
    row.set_metric("loss");
  }
  statistics::ItemRow own;
  own.metric = "loss";
  own.subject = "adapter";
  own.items = {0, 1};
  own.numbers = {{2, 1}, {3, 1}};
  statistics::TaskItems items;
  items.task = "perplexity";
  items.rows = {own};
  items.left_out = left_out;
  report.items = {items};
  return report;
}

std::string not_measured(const GateReport& report) {
  const auto results = judge_task_gates(compared_job(), report);
  EXPECT_EQ(results.size(), 1U);
  EXPECT_FALSE(results.at(0).passed());
  return results.at(0).not_measured();
}

// Items of many samples are left out of their file (services/statistics/item_rows.h): the other
// adapter is there all the same.
TEST(GateStageTest, WhatFoundNoRoomIsNotCalledDeleted) {
  const std::string why = not_measured(report_of({"base", "adapter", "other-1"}, 5));
  EXPECT_THAT(why, HasSubstr("too many samples"));
  EXPECT_THAT(why, HasSubstr("5 rows found no room; give it fewer"));
  EXPECT_THAT(why, Not(HasSubstr("deleted")));
}

TEST(GateStageTest, AnAdapterThatNobodyMeasuredWasDeleted) {
  EXPECT_THAT(not_measured(report_of({"base", "adapter"}, 5)),
              HasSubstr(std::string(kOtherAdapter) + " was deleted before it could be measured"));
}

TEST(GateStageTest, ARowThatIsNotThereIsItsFilesOrAnAdapters) {
  EXPECT_THAT(not_measured(report_of({"base", "adapter", "other-1"}, 0)),
              HasSubstr("the task gave no such row"));
}

}  // namespace
}  // namespace dex::agent
