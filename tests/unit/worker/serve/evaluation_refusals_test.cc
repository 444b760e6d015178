// Evaluations that end otherwise than with a report: whose fault it is, and in which words.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <string>
#include <utility>

#include "services/base/sha256.h"
#include "tests/support/content_of.h"
#include "tests/unit/worker/serve/evaluation_fixture.h"
#include "worker/serve/evaluation_report.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;

TEST_F(EvaluationFramesTest, AFileInTheWrongFormatIsRefusedWithLineAndReason) {
  const Said said = run(start("attempt-1", "broken"));
  EXPECT_EQ(said.exit, 11);
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(said.result.code(), "invalid_evaluation_file");
  EXPECT_EQ(said.result.param(), "tasks[1].multiple_choice");
  EXPECT_THAT(said.result.message(), HasSubstr("broken.published (file-2): line 2"));
  EXPECT_EQ(said.result.message().find(dir.path().string()), std::string::npos)
      << "no path of the server: " << said.result.message();
  EXPECT_TRUE(said.steps.empty()) << "every file is read before anything is computed";
}

TEST_F(EvaluationFramesTest, WhatATaskRefusesIsNotTheFilesFault) {
  auto impossible = start("attempt-1");
  impossible.mutable_spec()->mutable_tasks()->RemoveLast();
  impossible.mutable_spec()->mutable_tasks(0)->mutable_perplexity()->set_context_length(1 << 20);
  const Said said = run(impossible);
  EXPECT_EQ(said.exit, 10);
  EXPECT_EQ(said.result.code(), "invalid_hyperparameter") << said.result.message();
  EXPECT_THAT(said.result.message(), HasSubstr("ask for less with context_length,"))
      << "in the words of the spec";
}

// The model was trained on 1024 tokens. With leave it reads 1500 at once, and a note says so.
TEST_F(EvaluationFramesTest, BeyondTheModelsContextNeedsLeave) {
  std::ofstream text(dir / "long");
  for (int i = 0; i < 200; ++i) text << "The cat number " << i << " saw " << i * 7 << " birds .\n";
  text.close();
  auto asked = start("attempt-1");
  asked.mutable_spec()->mutable_tasks()->RemoveLast();
  asked.mutable_files(0)->set_path((dir / "long").string());
  auto& perplexity = *asked.mutable_spec()->mutable_tasks(0)->mutable_perplexity();
  perplexity.set_context_length(1500);
  EXPECT_EQ(run(asked).result.code(), "invalid_hyperparameter");
  perplexity.set_allow_extrapolation(true);
  const Said said = run(asked);
  ASSERT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
  const auto report = load_report(dir / "attempt-1/final", "checksums.json",
                                  said.result.result().manifest_sha256());
  EXPECT_THAT(report.results(0).notes(),
              ::testing::Contains(HasSubstr("extrapolated: a context of 1500 tokens is beyond")));
}

// Another worker would have to say the same: none goes out of service over it.
TEST_F(EvaluationFramesTest, ABaseWithoutATokenizerIsRefusedForGood) {
  const auto asked = start("attempt-1");
  std::filesystem::remove(dir / "models" / support::kTinyModel / "tokenizer.json");
  const Said said = run(asked);
  EXPECT_EQ(said.exit, 10) << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(said.result.param(), "subjects[0].model");
  EXPECT_THAT(said.result.message(), HasSubstr("no tokenizer.json"));
}

TEST_F(EvaluationFramesTest, AFileThatIsNotWhatWasUploadedIsNotMeasured) {
  auto asked = start("attempt-1");
  for (auto& file : *asked.mutable_files())
    file.set_sha256(base::sha256_hex(support::content_of(file.path())));
  EXPECT_EQ(run(asked).result.outcome(), internal::v1::OUTCOME_SUCCESS);
  asked.set_attempt_dir((dir / "attempt-2").string());
  std::filesystem::create_directories(dir / "attempt-2");
  std::ofstream(dir / "wiki", std::ios::app) << "One line more.\n";
  const Said said = run(asked);
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_RETRY);
  EXPECT_THAT(said.result.message(), HasSubstr("wiki.published (file-1) is not what was uploaded"));
  EXPECT_TRUE(said.steps.empty());
}

TEST_F(EvaluationFramesTest, AnAdapterOfOtherBytesAndABrokenBaseSayWhoseFaultItIs) {
  auto foreign = start("attempt-1");
  foreign.mutable_spec()->mutable_subjects(1)->set_adapter("ft:tiny:t::1");
  auto& adapter = *foreign.add_adapters();
  adapter.set_id("ft:tiny:t::1");
  adapter.set_path((dir / "none").string());
  adapter.set_content_sha256(std::string(64, '4'));
  const Said said = run(foreign);
  EXPECT_EQ(said.result.code(), "adapter_mismatch") << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);

  auto other = start("attempt-2");
  other.set_base_weights_sha256(std::string(64, 'a'));
  const Said broken = run(other);
  EXPECT_EQ(broken.exit, 17) << broken.result.message();
  EXPECT_EQ(broken.result.outcome(), internal::v1::OUTCOME_RELEASE);
}

TEST_F(EvaluationFramesTest, ABaseThatIsNotFiniteIsNotMeasured) {
  const auto asked = start("attempt-1");
  std::fstream weights(dir / "models" / support::kTinyModel / "model.safetensors",
                       std::ios::binary | std::ios::in | std::ios::out);
  weights.seekp(-2, std::ios::end);
  weights.write("\xc0\x7f", 2);  // NaN in bf16
  weights.close();
  const Said said = run(asked);
  EXPECT_EQ(said.exit, 17) << said.result.message();
  EXPECT_THAT(said.result.message(), HasSubstr("model.layers.2.mlp.down_proj.weight: expected "
                                               "finite values, found nan"));
  EXPECT_TRUE(said.steps.empty());
}

// No file may grow beyond a hundred bytes: EFBIG, which jobs.md §6 takes for a quota, like EDQUOT.
TEST_F(EvaluationFramesTest, AFullQuotaIsNoReasonToTryAgain) {
  const auto asked = start("attempt-1");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Said said = run(asked);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(said.exit, 15) << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(said.result.code(), "quota_exceeded");
  EXPECT_THAT(said.result.message(), HasSubstr("the storage quota is used up"));
  EXPECT_TRUE(said.steps.empty());
}

TEST_F(EvaluationFramesTest, AStopEndsItInTheWordsOfItsReason) {
  using Stop = TrainerCommand::Stop;
  const std::pair<Stop::Reason, internal::v1::Outcome> ends[] = {
      {Stop::REASON_CANCEL, internal::v1::OUTCOME_CANCELLED},
      {Stop::REASON_PAUSE, internal::v1::OUTCOME_PAUSED},
      {Stop::REASON_DRAIN, internal::v1::OUTCOME_RELEASE}};
  for (const auto& [stop, wanted] : ends) {
    const Stop::Reason reason = stop;  // a lambda can't hold a part of a binding
    const internal::v1::Outcome outcome = wanted;
    const Said said = run(start("attempt-" + std::to_string(reason)), [&](auto& agent) {
      TrainerCommand command;
      command.mutable_stop()->set_reason(reason);
      EXPECT_TRUE(agent.write(command.SerializeAsString(), kPatience_ms).ok());
    });
    EXPECT_EQ(said.result.outcome(), outcome);
    EXPECT_EQ(said.exit, 16);
    EXPECT_FALSE(std::filesystem::exists(dir / ("attempt-" + std::to_string(reason)) / "final"));
  }
}

}  // namespace
}  // namespace dex::serve
