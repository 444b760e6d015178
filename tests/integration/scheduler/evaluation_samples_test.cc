// What an evaluation asked and was answered, page by page.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

// Two tasks of two subjects: two samples of the first task, four of the second.
TEST_F(EvaluationTest, SamplesArePagedAndFiltered) {
  const std::string adapter = train_adapter();
  auto asked = perplexity_of(upload_evals("some text\n", "wiki.raw").id());
  asked.mutable_spec()->add_subjects()->set_adapter(adapter);
  asked.mutable_spec()->add_tasks()->mutable_icl()->set_file(
      upload_evals("{\"text\": \"a\", \"label\": \"b\"}\n", "rows.jsonl").id());
  const auto made = create_evaluation(asked);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  v1::ListEvaluationSamplesRequest request;
  request.set_id(made->id());
  EXPECT_EQ(samples(request).status().reason(), "JOB_STATE_CONFLICT");
  const auto job = claim().job();
  const std::string first =
      R"({"task": "perplexity", "subject": "base", "item": 0, "output": "x", "score": 0.5})"
      "\n"
      R"({"task": "perplexity", "subject": "adapter", "score": 0.5, "baseline_score": 0.5})"
      "\n";
  const std::string second =
      R"({"task": "icl", "subject": "base", "item": 0, "score": 1, "dims": {"shots": "4"}})"
      "\n"
      R"({"task": "icl", "subject": "base", "item": 1, "score": 0, "of_a_newer_worker": [1]})"
      "\n"
      R"({"task": "icl", "subject": "adapter", "item": 0, "score": 0, "baseline_score": 1})"
      "\n"
      R"({"task": "icl", "subject": "adapter", "item": 1, "score": 0, "baseline_score": 0})"
      "\n";
  ASSERT_EQ(publish(job, "w1", {{"samples-1.jsonl", first}, {"samples-2.jsonl", second}}),
            "SUCCEEDED");

  request.set_page_size(4);
  auto page = samples(request);
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  ASSERT_EQ(page->samples_size(), 4);
  EXPECT_EQ(page->samples(1).subject(), "adapter");
  EXPECT_EQ(page->samples(1).task_index(), 0U);
  EXPECT_EQ(page->samples(2).task_index(), 1U);
  EXPECT_EQ(page->samples(2).dims().at("shots"), "4");
  request.set_page_token(page->next_page_token());
  page = samples(request);
  ASSERT_EQ(page->samples_size(), 2);
  EXPECT_EQ(page->samples(0).baseline_score(), 1);
  EXPECT_EQ(page->samples(1).item(), 1);
  EXPECT_EQ(page->next_page_token(), "");

  request.clear_page_token();
  request.set_only_changed(true);
  page = samples(request);
  ASSERT_EQ(page->samples_size(), 1);
  EXPECT_EQ(page->samples(0).task(), "icl");
  EXPECT_EQ(page->samples(0).subject(), "adapter");
  EXPECT_EQ(page->samples(0).item(), 0);
  request.set_only_changed(false);
  request.set_task("tasks[0]");
  EXPECT_EQ(samples(request)->samples_size(), 2);
  request.set_task("icl");
  request.set_subject("base");
  EXPECT_EQ(samples(request)->samples_size(), 2);

  request.set_subject("nobody");
  EXPECT_EQ(samples(request).status().reason(), "INVALID_FIELD");
  request.set_subject("");
  request.set_task("answers");
  EXPECT_EQ(samples(request).status().reason(), "INVALID_FIELD");
  request.set_task("");
  for (const char* token : {"x", "3~y", "3~-1"}) {
    request.set_page_token(token);
    EXPECT_EQ(samples(request).status().reason(), "INVALID_CURSOR") << token;
  }
  request.set_page_token("");
  std::ofstream(directory_ / "data" / job.attempt_dir() / "final/samples-2.jsonl") << first;
  EXPECT_EQ(samples(request).status().reason(), "ARTIFACT_CORRUPT");
}

TEST_F(EvaluationTest, AnEvaluationOfAnOlderWorkerHasNoSamples) {
  enlist();
  const auto made = created();
  ASSERT_EQ(publish(claim().job()), "SUCCEEDED");
  v1::ListEvaluationSamplesRequest request;
  request.set_id(made.id());
  const auto page = samples(request);
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  EXPECT_EQ(page->samples_size(), 0);
}

}  // namespace
}  // namespace dex::server
