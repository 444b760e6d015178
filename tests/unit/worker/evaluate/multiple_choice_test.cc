#include "worker/evaluate/multiple_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/worker/evaluate/fake_subject.h"
#include "worker/evaluate/continuation.h"

namespace dex::evaluate {
namespace {

using ::testing::AllOf;
using testing::FakeSubject;
using ::testing::HasSubstr;
using testing::row_of;
using testing::run;

std::vector<ChoiceQuestion> questions(int count) {
  std::vector<ChoiceQuestion> out;
  for (int i = 0; i < count; ++i)
    out.push_back({i + 1, "", "q" + std::to_string(i), {"no", "maybe so", "yes"}, 2, {}});
  return out;
}

// Makes one token of " x", as tokenizers of words do: id 301.
class MergingSubject final : public FakeSubject {
 public:
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i, 2) == " x") {
        out.push_back(301);
        ++i;
      } else {
        out.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return out;
  }
};

TEST(ContinuationTest, BlanksAtThePromptsEndBelongToTheChoice) {
  const FakeSubject bytes;
  EXPECT_EQ(continuation(bytes, "ab: ", "cd").first, 3);
  EXPECT_EQ(continuation(bytes, "ab:", " cd").first, 3);
  const MergingSubject words;
  const auto joined = continuation(words, "ab: ", "xy");
  EXPECT_EQ(joined.tokens, (std::vector<int32_t>{'a', 'b', ':', 301, 'y'}));
  EXPECT_EQ(joined.first, 3);
  // At least one token is scored, and one stands before it.
  EXPECT_EQ(continuation(bytes, "", "c").first, 1);
  EXPECT_EQ(continuation(bytes, "ab", "").first, 1);
}

TEST(MultipleChoiceTest, SumBytesAndTokensChooseForThemselves) {
  // Every byte costs 1, but "y" costs 1.5: with the blank before it "no" has the best sum (3) and
  // the best per token (3/3), "maybe so" the best per byte (9.5/8).
  FakeSubject subject;
  subject.logprob = [](const std::string& text, size_t at) { return text[at] == 'y' ? -1.5 : -1; };
  MultipleChoice task({}, questions(3));
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  const Evaluation found = run(task, {&subject}, hooks);
  EXPECT_EQ(row_of(found, "acc").value, 0);
  EXPECT_EQ(row_of(found, "acc").n, 3);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].prompt, "Question: q0\nAnswer:");
  EXPECT_EQ(samples[0].output, "maybe so");
  EXPECT_EQ(samples[0].expected, "yes");
  EXPECT_THAT(samples[0].logprobs, ::testing::ElementsAre(-3, -9.5, -4.5));

  auto short_is_right = questions(3);
  for (auto& question : short_is_right) question.answer = 0;
  MultipleChoice other({}, short_is_right);
  EXPECT_EQ(row_of(run(other, {&subject}), "acc").value, 1);
  EXPECT_EQ(row_of(run(other, {&subject}), "acc_norm").value, 0);
  EXPECT_EQ(row_of(run(other, {&subject}), "acc_per_token").value, 1);
}

// As above, with "maybe so" right: only the score a byte says so.
TEST(MultipleChoiceTest, OneScoreGivesItsRowAndItsSamples) {
  FakeSubject subject;
  subject.logprob = [](const std::string& text, size_t at) { return text[at] == 'y' ? -1.5 : -1; };
  auto file = questions(3);
  for (auto& question : file) question.answer = 1;
  using Score = MultipleChoice::Score;
  const std::tuple<Score, const char*, double, const char*> cases[] = {
      {Score::kSum, "acc", 0, "no"},
      {Score::kPerByte, "acc_norm", 1, "maybe so"},
      {Score::kPerToken, "acc_per_token", 0, "no"}};
  for (const auto& [score, metric, value, output] : cases) {
    MultipleChoice task({.score = score}, file);
    std::vector<std::string> outputs;
    Hooks hooks;
    hooks.sample = [&](const Sample& sample) { outputs.push_back(sample.output); };
    const Evaluation found = run(task, {&subject}, hooks);
    ASSERT_EQ(found.rows.size(), 1U) << metric;
    EXPECT_EQ(found.rows[0].metric, metric);
    EXPECT_EQ(found.rows[0].value, value) << metric;
    EXPECT_THAT(outputs, ::testing::Each(output));
  }
}

TEST(MultipleChoiceTest, ContextLettersAndGroups) {
  FakeSubject subject;
  subject.logprob = [](const std::string& text, size_t at) { return text[at] == 'B' ? -1 : -2; };
  std::vector<ChoiceQuestion> file = {
      {1, "Some context.", "Who?", {"x", "y"}, 1, {{"category", "Age"}}},
      {2, "", "Why?", {"x", "y"}, 0, {{"category", "Race"}}}};
  MultipleChoice task({.letters = true}, file);
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  const Evaluation found = run(task, {&subject}, hooks);
  EXPECT_EQ(samples[0].prompt, "Some context.\nQuestion: Who?\nA. x\nB. y\nAnswer:");
  EXPECT_EQ(row_of(found, "acc").value, .5);
  EXPECT_EQ(row_of(found, "acc", "base", {{"category", "Age"}}).value, 1);
  EXPECT_EQ(row_of(found, "acc", "base", {{"category", "Race"}}).value, 0);
}

TEST(MultipleChoiceTest, ExamplesAreASeededDrawThatIsNotAsked) {
  FakeSubject subject;
  std::vector<std::string> seen;
  subject.logprob = [&](const std::string& text, size_t) {
    if (seen.empty() || seen.back() != text) seen.push_back(text);
    return -1;
  };
  const auto notes = [&](uint64_t seed) {
    seen.clear();
    MultipleChoice task({.shots = 2, .seed = seed}, questions(10));
    const Evaluation found = run(task, {&subject});
    EXPECT_EQ(row_of(found, "acc").n, 8);
    return found.notes.at(0);
  };
  EXPECT_EQ(notes(1), notes(1));
  EXPECT_NE(notes(1), notes(2));
  EXPECT_THAT(notes(1), AllOf(HasSubstr("examples shown: lines"), HasSubstr("not asked")));
  // Two examples with their answers, blank lines between, then the question.
  EXPECT_THAT(seen[0],
              ::testing::MatchesRegex("Question: q.\nAnswer: yes\n\nQuestion: q.\nAnswer: yes\n\n"
                                      "Question: q.\nAnswer: no"));
  EXPECT_THROW(MultipleChoice({.shots = 10}, questions(10)), std::runtime_error);
  MultipleChoice from_file({.shots = 3}, questions(5), questions(3));
  EXPECT_EQ(row_of(run(from_file, {&subject}), "acc").n, 5);
  MultipleChoice fewer({.samples = 4}, questions(10));
  EXPECT_EQ(row_of(run(fewer, {&subject}), "acc").n, 4);
}

TEST(MultipleChoiceTest, AQuestionThatDoesNotFitIsNamedByItsLine) {
  FakeSubject subject("base", 20);
  MultipleChoice task({}, questions(2));
  try {
    run(task, {&subject});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("line 1:"), HasSubstr("--n-shot")));
  }
}

}  // namespace
}  // namespace dex::evaluate
