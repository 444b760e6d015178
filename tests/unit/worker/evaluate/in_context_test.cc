#include "worker/evaluate/in_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/worker/evaluate/fake_subject.h"

namespace dex::evaluate {
namespace {

using testing::FakeSubject;
using ::testing::HasSubstr;
using testing::row_of;
using testing::run;

std::vector<LabelledText> rows(int count) {
  std::vector<LabelledText> out;
  for (int i = 0; i < count; ++i)
    out.push_back({i + 1, "t" + std::to_string(i), i % 2 == 0 ? "a" : "b"});
  return out;
}

// Says what the last example said; "a" without examples.
double copies_the_last(const std::string& text, size_t at) {
  const size_t question = text.rfind("Text: ");
  const std::string before = text.substr(0, question);
  const char last = before.size() < 3 ? 'a' : before[before.size() - 3];
  return text[at] == last ? -0.1 : -2.0;
}

TEST(InContextTest, OrderMattersToAModelThatCopiesTheLastExample) {
  FakeSubject subject;
  subject.logprob = copies_the_last;
  InContext task({.shots = {0, 4}, .order = InContext::Order::kByClass, .samples = 20}, rows(60));
  Hooks hooks;
  std::map<std::string, int> asked;
  hooks.sample = [&](const Sample& sample) { ++asked[*find(sample.dims, "order")]; };
  const Evaluation found = run(task, {&subject}, hooks);
  // Sorted up the last example is "b", sorted down it is "a": right for one class each.
  const double up =
      row_of(found, "accuracy_of_order", "base", {{"shots", "4"}, {"order", "by class"}}).value;
  const double down = row_of(found, "accuracy_of_order", "base",
                             {{"shots", "4"}, {"order", "by class, last first"}})
                          .value;
  EXPECT_NEAR(up + down, 1, 1e-12);
  EXPECT_NEAR(row_of(found, "accuracy", "base", {{"shots", "4"}}).value, .5, 1e-12);
  EXPECT_EQ(row_of(found, "accuracy", "base", {{"shots", "4"}}).n, 20);
  EXPECT_NEAR(row_of(found, "order_spread", "base", {{"shots", "4"}}).value, std::abs(up - down),
              1e-12);
  EXPECT_EQ(row_of(found, "accuracy_of_order", "base", {{"shots", "0"}, {"order", "random 1"}}).n,
            20);
  EXPECT_EQ(asked["by class"], 20);
}

TEST(InContextTest, ExamplesAreTheSameInEveryOrderAndNeverAsked) {
  FakeSubject subject;
  std::set<std::string> examples, questions;
  std::set<std::string> shown_sets;
  subject.logprob = [&](const std::string& text, size_t) {
    const size_t question = text.rfind("Text: ");
    questions.insert(text.substr(question + 6, text.find('\n', question) - question - 6));
    std::set<std::string> shown;
    for (size_t at = text.find("Text: "); at < question; at = text.find("Text: ", at + 1))
      shown.insert(text.substr(at + 6, text.find('\n', at) - at - 6));
    examples.insert(shown.begin(), shown.end());
    std::string joined;
    for (const auto& one : shown) joined += one + " ";
    shown_sets.insert(joined);
    return -1;
  };
  InContext task({.shots = {6}, .orders = 4, .order = InContext::Order::kBoth, .samples = 10},
                 rows(40));
  const Evaluation found = run(task, {&subject});
  EXPECT_EQ(shown_sets.size(), 1U);
  EXPECT_EQ(examples.size(), 6U);
  EXPECT_EQ(questions.size(), 10U);
  for (const auto& one : examples) EXPECT_FALSE(questions.contains(one));
  EXPECT_THAT(found.notes[0], HasSubstr("4 random orders"));
  // Always the first label: right for half of the questions, in whatever order.
  EXPECT_EQ(row_of(found, "order_spread", "base", {{"shots", "6"}}).value, 0);
}

TEST(InContextTest, ShotsThatDoNotFitAreLeftOutWithANote) {
  FakeSubject subject("base", 120);
  InContext task({.shots = {1, 16}, .samples = 5}, rows(40));
  const Evaluation found = run(task, {&subject});
  EXPECT_THAT(found.notes[0], HasSubstr("16 examples do not fit"));
  EXPECT_EQ(row_of(found, "accuracy", "base", {{"shots", "1"}}).n, 5);
  InContext none({.shots = {16}, .samples = 5}, rows(40));
  EXPECT_THROW(run(none, {&subject}), std::runtime_error);
}

// Counts how often a text is tokenised.
class CountingSubject final : public FakeSubject {
 public:
  using FakeSubject::FakeSubject;
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    ++counts[std::string(text)];
    return FakeSubject::encode(text);
  }
  mutable std::map<std::string, int> counts;
};

TEST(InContextTest, EveryPromptIsTokenisedOnce) {
  CountingSubject subject;
  std::vector<std::string> scored;
  subject.logprob = [&](const std::string& text, size_t at) {
    scored.push_back(text);
    return copies_the_last(text, at);
  };
  InContext task({.shots = {0, 9}, .orders = 4, .samples = 10}, rows(40));
  run(task, {&subject});
  // One order of no example and four of nine: the question, and it with either label.
  EXPECT_EQ(subject.counts.size(), 5U * 10 * 3);
  for (const auto& [text, count] : subject.counts) EXPECT_EQ(count, 1) << text;
  // What is scored is what was tokenised, whole.
  EXPECT_EQ(std::set<std::string>(scored.begin(), scored.end()).size(), 5U * 10 * 2);
  for (const std::string& text : scored) {
    EXPECT_TRUE(subject.counts.contains(text)) << text;
    EXPECT_TRUE(text.ends_with(" a") || text.ends_with(" b")) << text;
  }
}

// A model that takes 500 tokens more for a prompt where "a" follows "b": sorted up no prompt of
// these examples is longer than 450, sorted down every one is longer than 900.
class PairSubject final : public FakeSubject {
 public:
  PairSubject() : FakeSubject("base", 900) {}
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> out = FakeSubject::encode(text);
    const size_t b = text.find("Label: b\n");
    if (b != std::string_view::npos && text.find("Label: a\n", b) != std::string_view::npos)
      out.insert(out.begin(), 500, 'x');
    return out;
  }
};

TEST(InContextTest, ShotsThatDoNotFitInOneOfTheirOrdersAreLeftOut) {
  PairSubject subject;
  // 21 of 40 examples, 20 of either label, hold both; one has 19 or 20 bytes.
  InContext task({.shots = {0, 21}, .order = InContext::Order::kByClass, .samples = 5}, rows(40));
  const Evaluation found = run(task, {&subject});
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_THAT(found.notes[0], HasSubstr("21 examples do not fit"));
  for (const ResultRow& row : found.rows) EXPECT_EQ(*find(row.dims, "shots"), "0");
}

TEST(InContextTest, RefusesTooFewRowsAndTooManyLabels) {
  EXPECT_THROW(InContext({.shots = {40}}, rows(40)), std::runtime_error);
  EXPECT_THROW(InContext({.shots = {}}, rows(40)), std::runtime_error);
  EXPECT_THROW(InContext({.shots = {0}, .orders = 0}, rows(40)), std::runtime_error);
  std::vector<LabelledText> many;
  for (int i = 0; i < 65; ++i) many.push_back({i, "t", std::to_string(i)});
  EXPECT_THROW(InContext({.shots = {0}}, many), std::runtime_error);
}

}  // namespace
}  // namespace dex::evaluate
