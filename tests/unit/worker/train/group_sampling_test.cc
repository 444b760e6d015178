// Rows drawn by tag or language (finetuning.proto, Hyperparameters.group_by).
#include "worker/train/group_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/worker/train/job_fixture.h"
#include "worker/train/data_plan.h"
#include "worker/train/group_report.h"

namespace dex::train::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

void add_examples(std::vector<Example>& examples, const std::string& group, size_t count,
                  size_t length) {
  for (size_t i = 0; i < count; ++i) {
    Example example;
    example.ids.assign(length, 1);
    example.weights.assign(length, 1.0f);
    example.group = group;
    examples.push_back(std::move(example));
  }
}

// 30 rows "en" and 10 rows "cy" of 10 tokens each: 300 and 100 tokens.
std::vector<Example> two_languages() {
  std::vector<Example> examples;
  add_examples(examples, "en", 30, 10);
  add_examples(examples, "cy", 10, 10);
  return examples;
}

std::vector<int32_t> lengths_of(const std::vector<Example>& examples) {
  std::vector<int32_t> lengths;
  for (const Example& example : examples)
    lengths.push_back(static_cast<int32_t>(example.ids.size()));
  return lengths;
}

// How often each example comes in passes [first, last).
std::vector<int> counts(const GroupSampling& groups, size_t examples, int64_t first, int64_t last) {
  std::vector<int> out(examples);
  for (int64_t pass = first; pass < last; ++pass) {
    for (const uint32_t example : groups.draw(pass)) ++out[example];
  }
  return out;
}

TEST(GroupSamplingTest, EqualWeightsGiveEachGroupTheSameTokens) {
  const auto examples = two_languages();
  const GroupSampling groups(examples, {}, 7);
  ASSERT_EQ(groups.groups().size(), 2u);
  const auto &cy = groups.groups()[0], &en = groups.groups()[1];
  EXPECT_EQ(cy.name, "cy");
  EXPECT_EQ(cy.tokens, 100);
  EXPECT_EQ(cy.pass_tokens, 200);
  EXPECT_DOUBLE_EQ(cy.repeats(), 2);
  EXPECT_EQ(en.pass_tokens, 200);
  EXPECT_DOUBLE_EQ(en.repeats(), 2.0 / 3);
  EXPECT_EQ(groups.pass_tokens(), 400) << "as many as the rows are";
  const auto pass = counts(groups, examples.size(), 0, 1);
  EXPECT_EQ(std::accumulate(pass.begin(), pass.begin() + 30, 0), 20) << "of 30";
  for (size_t i = 0; i < 30; ++i) EXPECT_LE(pass[i], 1);
  for (size_t i = 30; i < 40; ++i) EXPECT_EQ(pass[i], 2);
  // Three passes read 600 tokens of each: every English row twice, every Welsh one six times.
  const auto three = counts(groups, examples.size(), 0, 3);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(three[i], i < 30 ? 2 : 6);
}

TEST(GroupSamplingTest, WeightsAreSharesAndOneThatIsNotNamedIsOne) {
  const auto examples = two_languages();
  const GroupSampling groups(examples, {{"en", 3}}, 7);
  EXPECT_EQ(groups.groups()[0].pass_tokens, 100);
  EXPECT_EQ(groups.groups()[1].pass_tokens, 300);
  EXPECT_DOUBLE_EQ(groups.groups()[0].weight, 1);
  // These are the shares that the rows have anyway, so a pass has each row once.
  for (const int count : counts(groups, examples.size(), 4, 5)) EXPECT_EQ(count, 1);
  EXPECT_THROW(GroupSampling(examples, {{"en", 0}}, 7), std::runtime_error);
}

// Rows of all lengths: a share is missed by less than a row, and never more however many passes.
TEST(GroupSamplingTest, SharesAreKeptToWithinARow) {
  std::vector<Example> examples;
  for (size_t i = 0; i < 200; ++i) {
    const std::string group = i % 10 == 0 ? "cy" : i % 3 == 0 ? "de" : "en";
    add_examples(examples, group, 1, 1 + i * 37 % 100);
  }
  const GroupSampling groups(examples, {{"cy", 2}, {"en", 0.5}}, 11);
  std::map<std::string, int64_t> read;
  std::map<std::string, std::vector<uint32_t>> order;
  for (int64_t pass = 0; pass < 40; ++pass) {
    for (const uint32_t example : groups.draw(pass)) {
      read[examples[example].group] += static_cast<int64_t>(examples[example].ids.size());
      order[examples[example].group].push_back(example);
    }
    for (const auto& group : groups.groups())
      EXPECT_LT(std::abs(read[group.name] - (pass + 1) * group.pass_tokens), 100) << group.name;
  }
  // None comes again before all of its group have come.
  for (const auto& group : groups.groups()) {
    const auto& drawn = order[group.name];
    const size_t size = group.examples.size();
    for (size_t round = 0; (round + 1) * size <= drawn.size(); ++round) {
      const auto begin = drawn.begin() + static_cast<std::ptrdiff_t>(round * size);
      EXPECT_EQ(std::set<uint32_t>(begin, begin + static_cast<std::ptrdiff_t>(size)).size(), size);
    }
  }
  // Another round, another order.
  const auto& cy = order["cy"];
  EXPECT_FALSE(std::equal(cy.begin(), cy.begin() + 20, cy.begin() + 20));
}

TEST(GroupSamplingTest, APassIsAFunctionOfSeedAndPass) {
  const auto examples = two_languages();
  const GroupSampling groups(examples, {}, 7), again(examples, {}, 7), other(examples, {}, 8);
  const auto fifth = groups.draw(5);
  (void)again.draw(0);
  EXPECT_EQ(again.draw(5), fifth);
  EXPECT_NE(other.draw(5), fifth);
}

TEST(GroupSamplingTest, ThePlanReadsWhatIsDrawnInAsManyUpdates) {
  const auto examples = two_languages();
  DataPlan::Options options;
  options.packing.packing = false;
  options.batch_size = 8;
  options.passes = 3;
  options.seed = 7;
  const auto lengths = lengths_of(examples);
  DataPlan as_they_are(lengths, options);
  options.groups = GroupSampling(examples, {}, 7);
  DataPlan plan(lengths, options), resumed(lengths, options);
  EXPECT_EQ(plan.updates(), 15);
  EXPECT_EQ(plan.updates(), as_they_are.updates()) << "equal budgets stay equal";
  std::vector<int> seen(examples.size());
  int mixed = 0;
  for (int64_t u = 0; u < plan.updates(); ++u) {
    std::set<std::string> together;
    for (const Pack& pack : plan.update(u).packs) {
      for (const uint32_t example : pack) {
        ++seen[example];
        together.insert(examples[example].group);
      }
    }
    mixed += together.size() == 2;
  }
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(seen[i], i < 30 ? 2 : 6);
  EXPECT_GE(mixed, 14) << "groups are not read one after the other";
  // Asked out of order, as after a resume: the same packs.
  for (const int64_t u : {int64_t{14}, int64_t{3}, int64_t{0}}) {
    const auto a = plan.update(u), b = resumed.update(u);
    EXPECT_TRUE(std::equal(a.packs.begin(), a.packs.end(), b.packs.begin(), b.packs.end()));
  }
  // Packed, a row that was drawn twice occurs twice.
  options.packing = {.max_tokens = 40};
  DataPlan packed(lengths, options);
  std::vector<int> in_packs(examples.size());
  for (int64_t u = 0; u < packed.updates(); ++u) {
    for (const Pack& pack : packed.update(u).packs) {
      for (const uint32_t example : pack) ++in_packs[example];
    }
  }
  EXPECT_EQ(in_packs, seen);
}

JobSpec by_language(std::map<std::string, double> weights = {}) {
  JobSpec spec;
  spec.hyperparameters.group_by = GroupBy::kLanguage;
  spec.hyperparameters.group_weights = std::move(weights);
  return spec;
}

TEST(GroupReportTest, OnlyGroupsOfTheFileHaveWeights) {
  Dataset data;
  data.train = two_languages();
  data.groups = {"cy", "en", "fr"};  // French rows are all held out
  EXPECT_TRUE(group_sampling(by_language({{"cy", 2}}), data));
  EXPECT_THAT(group_warnings(by_language(), data, group_sampling(by_language(), data)), IsEmpty());
  try {
    (void)group_sampling(by_language({{"de", 2}}), data);
    ADD_FAILURE() << "a weight of nothing was taken";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit(), Exit::kBadSpec);
    EXPECT_STREQ(failure.what(),
                 "hyperparameters.group_weights: no row of the training file has language \"de\"; "
                 "there are \"cy\", \"en\", \"fr\"");
  }
  const JobSpec french = by_language({{"fr", 2}});
  EXPECT_THAT(group_warnings(french, data, group_sampling(french, data)),
              ElementsAre("group_absent: all rows of language \"fr\" are held out or left out, so "
                          "its weight has no effect"));
}

TEST(GroupReportTest, OneGroupIsReadAsItIsAndSaysSo) {
  Dataset data;
  add_examples(data.train, kNoGroup, 12, 10);
  EXPECT_FALSE(group_sampling(by_language(), data));
  EXPECT_THAT(group_warnings(by_language(), data, std::nullopt),
              ElementsAre("group_single: hyperparameters.group_by has nothing to balance: no row "
                          "to train on carries a language, so rows are read as they are"));
  JobSpec none;
  EXPECT_FALSE(group_sampling(none, data));
  EXPECT_THAT(group_warnings(none, data, std::nullopt), IsEmpty());
}

TEST(GroupReportTest, AFewRowsThatFillTheirShareAgainAndAgainAreNamed) {
  Dataset data;
  add_examples(data.train, "en", 99, 10);
  add_examples(data.train, "cy", 1, 10);
  const auto groups = group_sampling(by_language(), data);
  EXPECT_THAT(
      group_warnings(by_language(), data, groups),
      ElementsAre(StartsWith("group_repeated: a pass reads each row of language \"cy\" 50 "
                             "times, because all there is of it, 10 tokens, is to be 50 % of")));
}

TEST(GroupReportTest, EveryGroupIsShownWithWhatItGets) {
  const auto examples = two_languages();
  const GroupSampling groups(examples, {{"cy", 3}}, 7);
  EXPECT_EQ(groups_text(GroupBy::kTag, groups),
            "rows drawn by tag: cy 75 % of the tokens (3 times a pass), en 25 % (0.3333 times a "
            "pass)");
  const auto shown = nlohmann::json::parse(groups_json(groups));
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0], (nlohmann::json{{"name", "cy"},
                                      {"sequences", "10"},
                                      {"tokens", "100"},
                                      {"weight", 3.0},
                                      {"ratio", 0.75},
                                      {"repeats", 3.0}}));
  EXPECT_EQ(shown[1].at("name"), "en");
  std::vector<Example> many;
  for (int i = 0; i < 70; ++i) add_examples(many, std::string(100, 'a') + std::to_string(i), 1, 10);
  const GroupSampling long_names(many, {}, 7);
  EXPECT_EQ(nlohmann::json::parse(groups_json(long_names)).size(), 64u);
  EXPECT_THAT(groups_text(GroupBy::kTag, long_names), ::testing::EndsWith(" and 66 more"));
  EXPECT_THAT(groups_text(GroupBy::kTag, long_names), HasSubstr(std::string(64, 'a') + "… "));
}

// Whole jobs on rows with languages, a row a sequence.
class GroupedJobTest : public JobTest {
 protected:
  struct Row {
    size_t length = 10;
    std::string language;
  };
  JobSpec on(const std::vector<Row>& rows) const {
    std::ofstream out(directory_ / "languages.jsonl");
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<int32_t> ids(rows[i].length, 1);
      ids.front() = static_cast<int32_t>(i % 97);
      nlohmann::json row = {{"input_ids", ids}, {"labels", ids}};
      if (!rows[i].language.empty()) row["language"] = rows[i].language;
      out << row.dump() << '\n';
    }
    JobSpec spec = this->spec();
    spec.training_path = directory_ / "languages.jsonl";
    spec.hyperparameters.packing = false;
    spec.hyperparameters.max_steps = 0;
    spec.hyperparameters.group_by = GroupBy::kLanguage;
    return spec;
  }
  static std::vector<Row> english_and_welsh() {
    std::vector<Row> rows(30, Row{10, "en"});
    rows.resize(36, Row{10, "cy"});
    rows.resize(40, Row{10, ""});
    return rows;
  }
};

TEST_F(GroupedJobTest, TheStartSaysWhatEachLanguageGets) {
  JobSpec spec = on(english_and_welsh());
  spec.hyperparameters.n_epochs = 2;
  spec.hyperparameters.group_weights = {{kNoGroup, 0.5}};
  RecordingSession session;
  run(spec, session);
  const auto start = session.data("training_start").at(0);
  EXPECT_EQ(start.at("totalSteps"), 20) << "two passes of 40 rows, 4 an update, as without";
  ASSERT_EQ(start.at("groups").size(), 3u);
  EXPECT_EQ(start["groups"][0].at("name"), "cy");
  EXPECT_EQ(start["groups"][0].at("sequences"), "6");
  EXPECT_DOUBLE_EQ(start["groups"][0].at("ratio").get<double>(), 0.4);
  EXPECT_EQ(start["groups"][2].at("name"), "(none)");
  EXPECT_DOUBLE_EQ(start["groups"][2].at("ratio").get<double>(), 0.2);
  for (const Event& event : session.events) {
    if (event.type == "training_start")
      EXPECT_THAT(event.message, HasSubstr("rows drawn by language: cy 40 % of the tokens"));
  }
  // 16, 16 and 8 rows of 10 tokens in each pass.
  EXPECT_EQ(session.last.trained_tokens, 800);
  RecordingSession plain;
  spec = on(english_and_welsh());
  spec.attempt_dir = directory_ / "plain";
  spec.hyperparameters.n_epochs = 2;
  spec.hyperparameters.group_by = GroupBy::kNone;
  run(spec, plain);
  EXPECT_EQ(plain.last.trained_tokens, 800);
  EXPECT_FALSE(plain.data("training_start").at(0).contains("groups"));
}

TEST_F(GroupedJobTest, AWeightOfNoRowEndsTheJobBeforeItTrains) {
  JobSpec spec = on(english_and_welsh());
  spec.hyperparameters.group_weights = {{"welsh", 2}};
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_EQ(failure.param(), "hyperparameters.group_weights");
  EXPECT_THAT(failure.what(), HasSubstr("there are \"(none)\", \"cy\", \"en\""));
}

// A probe has to find the longest row of the whole job, in whichever pass it comes.
TEST_F(GroupedJobTest, AProbeLooksIntoEveryPass) {
  std::vector<Row> rows(60, Row{20, "en"});
  rows.resize(66, Row{20, "cy"});
  JobSpec spec = on(rows);
  spec.hyperparameters.group_weights = {{"cy", 9}};
  spec.hyperparameters.n_epochs = 30;
  spec.probe_only = true;
  const auto sampled = [&] {
    std::vector<Example> examples;
    for (const Row& row : rows) add_examples(examples, row.language, 1, row.length);
    return GroupSampling(examples, spec.hyperparameters.group_weights, spec.seed);
  };
  // English gets 132 of 1,320 tokens a pass, 6 or 7 of its rows; the last of its first round.
  std::vector<uint32_t> english;
  for (int64_t pass = 0; english.size() < 60; ++pass) {
    for (const uint32_t example : sampled().draw(pass)) {
      if (example < 60) english.push_back(example);
    }
  }
  const uint32_t late = english[59];
  rows[late].length = 50;
  const auto first = sampled().draw(0);
  ASSERT_EQ(std::count(first.begin(), first.end(), late), 0);
  on(rows);
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_TRUE(published.memory_probe);
  EXPECT_EQ(published.memory_probe->longest_row_tokens, 50);
}

}  // namespace
}  // namespace dex::train::testing
