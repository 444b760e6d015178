#include "proto/task_files.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "proto/worker_features.h"

namespace dex::proto {
namespace {

// By hand and by task: a new task, or a new field that is a file, must be entered.
TEST(TaskFilesTest, EveryTasksFilesAreFoundTheDataFirst) {
  const std::map<std::string, std::vector<std::string>> expected = {
      {"perplexity", {"file"}},
      {"multi_needle", {"file"}},
      {"multiple_choice", {"file", "shots_file"}},
      {"icl", {"file"}},
      {"answers", {"file"}},
      {"head_analysis", {"file"}},
      {"instructions", {"file"}}};
  std::map<std::string, std::vector<std::string>> found;
  const auto* oneof = v1::EvaluationTask::descriptor()->FindOneofByName("task");
  for (int i = 0; i < oneof->field_count(); ++i) {
    v1::EvaluationTask task;
    task.GetReflection()->MutableMessage(&task, oneof->field(i));
    for (const TaskFile& file : task_files(task)) {
      found[oneof->field(i)->name()].push_back(file.field);
      EXPECT_EQ(file.file, "");
    }
  }
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(task_files({}).empty());
}

TEST(TaskFilesTest, OnlyNeedlesHaveATextOfTheirOwn) {
  v1::EvaluationTask task;
  EXPECT_TRUE(needs_file(task));
  task.mutable_perplexity();
  EXPECT_TRUE(needs_file(task));
  task.mutable_multi_needle();
  EXPECT_FALSE(needs_file(task));
}

TEST(TaskFilesTest, FilesAreReadAndSetByTheirFields) {
  v1::EvaluationTask task;
  task.mutable_multiple_choice()->set_file("questions.csv");
  task.mutable_multiple_choice()->set_shots_file("examples.csv");
  task.mutable_multiple_choice()->set_n_shot(5);
  const auto files = task_files(task);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].file, "questions.csv");
  EXPECT_EQ(files[1].file, "examples.csv");
  set_task_file(task, files[1].field, "file-2");
  EXPECT_EQ(task.multiple_choice().file(), "questions.csv");
  EXPECT_EQ(task.multiple_choice().shots_file(), "file-2");
  EXPECT_EQ(task.multiple_choice().n_shot(), 5U);
}

TEST(WorkerFeaturesTest, NeedlesWithoutAFileAskForWorkersThatHaveTheText) {
  dex::v1::EvaluationSpec spec;
  spec.add_tasks()->mutable_perplexity();
  spec.add_tasks()->mutable_multi_needle()->set_file("file-1");
  EXPECT_EQ(needed_feature(spec), "");
  spec.add_tasks()->mutable_multi_needle();
  EXPECT_EQ(needed_feature(spec), kShippedText);
  dex::v1::FineTuningJobSpec job;
  job.add_gates()->set_task("held_out");
  EXPECT_EQ(needed_feature(job), "");
  job.add_gates()->mutable_evaluation()->mutable_multi_needle();
  EXPECT_EQ(needed_feature(job), kShippedText);
  EXPECT_EQ(model_and_feature("small", ""), "small");
  EXPECT_TRUE(is_plain_model("small"));
  EXPECT_FALSE(is_plain_model(model_and_feature("small", kShippedText)));
}

}  // namespace
}  // namespace dex::proto
