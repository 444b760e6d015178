#include "worker/evaluate/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/evaluate/fake_subject.h"
#include "worker/evaluate/answer_match.h"
#include "worker/evaluate/instructions.h"

namespace dex::evaluate {
namespace {

using testing::FakeSubject;
using ::testing::HasSubstr;
using testing::row_of;
using testing::run;

TEST(AnswerMatchTest, CasePunctuationAndArticlesDoNotCount) {
  EXPECT_EQ(normalised("  The  Cat's, \"an\" A-hat!\n"), "cats ahat");
  EXPECT_EQ(normalised("Zürich Ä"), "zürich Ä");  // ASCII only
  const std::vector<std::string> gold = {"The Eiffel Tower"};
  EXPECT_EQ(match_answer("eiffel tower.", gold).exact, 1);
  EXPECT_EQ(match_answer("It is the Eiffel Tower!", gold).exact, 0);
  EXPECT_EQ(match_answer("It is the Eiffel Tower!", gold).contains, 1);
  EXPECT_EQ(match_answer("It is the Eiffel Towers!", gold).contains, 0);  // whole words
}

TEST(AnswerMatchTest, F1CountsWordsInCommonAndTakesTheBestAnswer) {
  const std::vector<std::string> gold = {"red green green", "blue"};
  // red, green in common: P = 2/3, R = 2/3.
  EXPECT_DOUBLE_EQ(match_answer("red green red", gold).f1, 2.0 / 3);
  EXPECT_DOUBLE_EQ(match_answer("the blue", gold).f1, 1);
  EXPECT_DOUBLE_EQ(match_answer("it was blue", gold).f1, 2 * 1.0 / (3 + 1));
  EXPECT_DOUBLE_EQ(match_answer("nothing", gold).f1, 0);
  EXPECT_DOUBLE_EQ(match_answer("", gold).f1, 0);
  EXPECT_EQ(match_answer("anything", std::vector<std::string>{"the"}).contains, 0);
}

TEST(AnswersTest, QuestionsEndWithTheirLineAndChatsGoThroughTheTemplate) {
  FakeSubject subject;
  subject.answer = [](const std::string& prompt) {
    return prompt.find("capital") != std::string::npos ? " The Paris." : "no idea";
  };
  std::vector<AnswerQuestion> file = {
      {1, "capital?", {}, true, {"paris"}},
      {2, "", {{.role = "user", .content = "capital of France?"}}, false, {"Paris", "Lutetia"}},
      {3, "else", {}, false, {"paris", "an idea"}}};
  Answers task({.max_tokens = 8}, file);
  const Evaluation found = run(task, {&subject});
  EXPECT_NEAR(row_of(found, "exact").value, 2.0 / 3, 1e-12);
  EXPECT_EQ(row_of(found, "contains").value, 1);
  EXPECT_NEAR(row_of(found, "f1").value, (1 + 1 + 2.0 / 3) / 3, 1e-12);
  EXPECT_EQ(row_of(found, "f1").kind, IntervalKind::kBootstrap);
  EXPECT_EQ(row_of(found, "exact").kind, IntervalKind::kWilson);
  EXPECT_EQ(subject.prompts[0], "capital?");
  EXPECT_EQ(subject.prompts[1], "<user>capital of France?<assistant>");

  Answers chat({.samples = 1, .chat = true}, {file[0], file[2]});
  EXPECT_EQ(row_of(run(chat, {&subject}), "exact").n, 1);
  EXPECT_THAT(subject.prompts.back(), HasSubstr("<assistant>"));

  FakeSubject small("base", 12);
  EXPECT_THROW(run(task, {&small}), std::runtime_error);
}

class InstructionsTest : public ::testing::Test {
 protected:
  nlohmann::json read(const std::string& name) const {
    std::ifstream file(dir_ / "out" / name);
    return nlohmann::json::parse(file);
  }
  support::TemporaryDirectory dir_;
};

TEST_F(InstructionsTest, ExportsAlpacaEvalsFormatAndBlindPairsWithTheirKeyApart) {
  FakeSubject base("base"), other("tuned");
  base.answer = [](const auto& prompt) { return "base: " + prompt; };
  other.answer = [](const auto& prompt) { return "tuned: " + prompt; };
  std::vector<Instruction> set;
  for (int i = 0; i < 40; ++i) set.push_back({i + 1, "do " + std::to_string(i), i == 0 ? "d" : ""});
  Instructions task({.max_tokens = 5, .seed = 4}, set);
  run(task, {&base, &other});
  EXPECT_EQ(task.write(dir_ / "out").size(), 4U);

  const auto outputs = read("outputs-tuned.json");
  ASSERT_EQ(outputs.size(), 40U);
  EXPECT_EQ(outputs[0]["instruction"], "do 0");
  EXPECT_EQ(outputs[0]["output"], "tuned: <user>do 0<assistant>");
  EXPECT_EQ(outputs[0]["generator"], "tuned");
  EXPECT_EQ(outputs[0]["dataset"], "d");
  EXPECT_FALSE(outputs[1].contains("dataset"));

  const auto pairs = read("pairs-tuned.json"), key = read("pairs-tuned.key.json");
  int base_first = 0;
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(pairs[i].size(), 4U);  // id, instruction, a, b: nothing that tells who is who
    for (const char* side : {"a", "b"}) {
      const std::string who = key[i][side];
      EXPECT_EQ(pairs[i][side], who + ": <user>do " + std::to_string(i) + "<assistant>");
    }
    EXPECT_NE(key[i]["a"], key[i]["b"]);
    base_first += key[i]["a"] == "base" ? 1 : 0;
  }
  EXPECT_GT(base_first, 8);
  EXPECT_LT(base_first, 32);
}

}  // namespace
}  // namespace dex::evaluate
