#include "worker/evaluate/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/evaluate/fake_subject.h"
#include "worker/evaluate/answer_match.h"
#include "worker/evaluate/instructions.h"
#include "worker/evaluate/unseen_strings.h"

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

TEST(UnseenStringsTest, CountsNumbersAndNamesThatTheSourceLacks) {
  const std::string source =
      "In 1998 Ann Lee sold 1,000 pears to \xE2\x80\x9CPears & Co\xE2\x80\x9D for 3.5 coins.";
  const auto count = [&](const char* output) { return unseen_strings(output, source).unseen; };
  EXPECT_EQ(count("Ann's pears: 1000 for Lee, 3.5 each, in 1998."), 0);
  EXPECT_EQ(count("Yesterday Ann sold 1001 pears. Bob and I saw Bob."), 2);  // 1001, the second Bob
  EXPECT_EQ(count("He met ann in Oslo\xE2\x80\x94not Rome\xE2\x80\x99s Lee."), 2);  // Oslo, Rome
  EXPECT_EQ(count("It cost 3 or 5 or 35."), 3);  // 3.5 is one number
  EXPECT_EQ(unseen_strings("Ann Lee's 1,000 pears -- sold!", source).words, 5);
  EXPECT_EQ(unseen_strings("", source).words, 0);
  EXPECT_EQ(unseen_strings("to Paris in 2001", "").unseen, 2);
}

TEST(AnswersTest, RowsWithASourceAreHeldAgainstIt) {
  support::TemporaryDirectory dir;
  std::ofstream(dir / "rows.jsonl")
      << R"({"prompt": "Sum up: Ann sold 12 pears.", "source": "Ann sold 12 pears."}
{"question": "Who sold?", "context": "Ann sold 12 pears.", "answers": ["Ann"]}
{"prompt": "no source", "answers": ["x"]}
)";
  FakeSubject subject;
  subject.answer = [](const std::string& prompt) {
    if (prompt.starts_with("Sum up")) return "Then Ann sold 13 pears to Bob.";  // 13, Bob of 7
    return prompt.starts_with("no source") ? "x of Mars" : "Ann sold it";
  };
  Answers task({.max_tokens = 8}, read_answers(dir / "rows.jsonl"));
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  const Evaluation found = run(task, {&subject}, hooks);
  const ResultRow unseen = row_of(found, "unseen_strings_per_100_words");
  EXPECT_DOUBLE_EQ(unseen.value, 100 * 2.0 / (7 + 3));
  EXPECT_EQ(unseen.n, 2);
  EXPECT_EQ(unseen.kind, IntervalKind::kBootstrap);
  EXPECT_EQ(row_of(found, "exact").n, 2);  // a text to sum up has no answer
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_DOUBLE_EQ(samples[0].score, 1 - 2.0 / 7);
  EXPECT_EQ(samples[0].expected, "");

  std::ofstream(dir / "bad.jsonl") << R"({"prompt": "p", "source": " "})"
                                   << "\n"
                                   << R"({"prompt": "p"})"
                                   << "\n";
  EXPECT_THROW(read_answers(dir / "bad.jsonl"), std::runtime_error);
}

TEST(AnswersTest, QuestionsEndWithTheirLineAndChatsGoThroughTheTemplate) {
  FakeSubject subject;
  subject.answer = [](const std::string& prompt) {
    return prompt.find("capital") != std::string::npos ? " The Paris." : "no idea";
  };
  std::vector<AnswerQuestion> file = {
      {1, "capital?", {}, true, {"paris"}, ""},
      {2, "", {{.role = "user", .content = "capital of France?"}}, false, {"Paris", "Lutetia"}, ""},
      {3, "else", {}, false, {"paris", "an idea"}, ""}};
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

// Of "The Paris or Lutetia": the answer is in it, and a third of its words are the answer's.
TEST(AnswersTest, OneMatchGivesItsRowAndItsSamples) {
  FakeSubject subject;
  subject.answer = [](const std::string&) { return "The Paris or Lutetia"; };
  const std::vector<AnswerQuestion> file = {{1, "capital?", {}, true, {"paris"}, "Paris."}};
  using Match = Answers::Match;
  const std::tuple<Match, const char*, double> cases[] = {
      {Match::kExact, "exact", 0}, {Match::kContains, "contains", 1}, {Match::kF1, "f1", 0.5}};
  for (const auto& [match, metric, value] : cases) {
    Answers task({.max_tokens = 8, .match = match}, file);
    std::vector<double> scores;
    Hooks hooks;
    hooks.sample = [&](const Sample& sample) { scores.push_back(sample.score); };
    const Evaluation found = run(task, {&subject}, hooks);
    ASSERT_EQ(found.rows.size(), 2U) << metric;
    EXPECT_EQ(found.rows[0].metric, metric);
    EXPECT_DOUBLE_EQ(found.rows[0].value, value) << metric;
    EXPECT_EQ(found.rows[1].metric, "unseen_strings_per_100_words") << "whatever the match";
    EXPECT_DOUBLE_EQ(found.rows[1].value, 100 * 1.0 / 4) << "Lutetia, of four words";
    EXPECT_THAT(scores, ::testing::ElementsAre(::testing::DoubleEq(value)));
  }
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
