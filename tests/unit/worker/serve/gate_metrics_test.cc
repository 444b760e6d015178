// What a gate may name (proto/gate_tasks.h) is what the tasks measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/gate_tasks.h"
#include "tests/support/temporary_directory.h"
#include "worker/serve/evaluate_command.h"

namespace dex::serve {
namespace {

using Lines = std::set<std::string>;

// "multi_needle accuracy: | length | depth length"; a part for each way in which it is grouped.
std::string line_of(const std::string& task, const std::string& metric,
                    std::vector<std::vector<std::string>> groupings) {
  Lines parts;
  for (auto& keys : groupings) {
    std::ranges::sort(keys);
    std::string part;
    for (const std::string& key : keys) part += (part.empty() ? "" : " ") + key;
    parts.insert(part);
  }
  std::string text = task + " " + metric + ":";
  for (const std::string& part : parts) text += " |" + part;
  return text;
}

TEST(GateMetricsTest, AreThoseOfTheTasks) {
  const support::TemporaryDirectory dir;
  std::ofstream(dir / "text.jsonl") << R"({"text": "A cat sat. A dog ran.", "tag": "a"})"
                                    << "\n";
  std::ofstream(dir / "choices.csv") << "What is two?,1,2,3,4,B\n";
  std::ofstream(dir / "labels.jsonl") << R"({"text": "good", "label": "yes"})"
                                      << "\n"
                                      << R"({"text": "bad", "label": "no"})"
                                      << "\n";
  std::ofstream(dir / "answers.jsonl") << R"({"prompt": "Who?", "answers": ["me"]})"
                                       << "\n";
  const std::pair<const char*, const char*> files[] = {
      {"perplexity", "text.jsonl"},       {"multi_needle", "text.jsonl"},
      {"multiple_choice", "choices.csv"}, {"icl", "labels.jsonl"},
      {"answers", "answers.jsonl"},       {"head_analysis", "text.jsonl"}};
  Lines measured;
  for (const auto& [name, file] : files) {
    EvaluateCommand command;
    command.task = name;
    command.file = dir / file;
    command.perplexity.group_by = {"tag", "language", "length_bucket"};
    command.icl.shots = {0};
    const auto task = make_task(command);
    for (const evaluate::Metric& metric : task->metrics()) {
      if (metric.name == "hessian_histogram") continue;  // nobody knows its ranges beforehand
      auto groupings = metric.groupings;
      // Numbers of heads are tables and no rows; what groups questions is the file's to say.
      std::erase_if(groupings,
                    [](const auto& keys) { return std::ranges::find(keys, "head") != keys.end(); });
      if (command.task == "multiple_choice")
        groupings = std::vector<std::vector<std::string>>{{}, {"*"}};
      measured.insert(line_of(name, metric.name, groupings));
    }
  }
  Lines named;
  for (const auto& known : proto::task_metrics())
    named.insert(line_of(known.task, known.metric, known.groupings));
  EXPECT_THAT(named, ::testing::ElementsAreArray(measured));
}

// Which numbers a gate may name where its task leaves them open.
TEST(GateMetricsTest, UsualNumbersAreThoseOfTheTasks) {
  const auto refused = [](v1::Gate& gate, const char* dim, int32_t value) {
    (*gate.mutable_dims())[dim] = std::to_string(value);
    return !proto::bad_task_gate(gate, "").empty();
  };
  v1::Gate icl, needles;
  icl.set_metric("accuracy");
  icl.mutable_evaluation()->mutable_icl()->set_file("f");
  const evaluate::InContext::Options of_icl;
  for (const int32_t shots : of_icl.shots) EXPECT_FALSE(refused(icl, "shots", shots)) << shots;
  EXPECT_TRUE(refused(icl, "shots", 5));
  needles.set_metric("accuracy");
  needles.mutable_evaluation()->mutable_multi_needle()->set_file("f");
  (*needles.mutable_dims())["length"] = "1024";
  const evaluate::MultiNeedle::Options of_needles;
  for (const int32_t depth : of_needles.depths_percent)
    EXPECT_FALSE(refused(needles, "depth", depth)) << depth;
  EXPECT_TRUE(refused(needles, "depth", 30));
}

}  // namespace
}  // namespace dex::serve
