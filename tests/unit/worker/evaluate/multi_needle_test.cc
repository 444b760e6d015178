#include "worker/evaluate/multi_needle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <utility>

#include "services/base/sha256.h"
#include "tests/unit/worker/evaluate/fake_subject.h"
#include "worker/evaluate/heat_map.h"
#include "worker/evaluate/prompt_parts.h"
#include "worker/evaluate/shipped_text.h"

namespace dex::evaluate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::FakeSubject;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::row_of;
using testing::run;
using ::testing::StartsWith;

TextFile filler() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "This is sentence " + std::to_string(i) + " of them. ";
  return {{{1, text, {}, {}}}, true};
}

// Answers with the numbers of the cities that the question names, found in the haystack.
std::string perfect(const std::string& prompt) {
  const std::string question = prompt.substr(prompt.find("Question: "));
  std::string out;
  const std::regex needle("The magic number of ([A-Z][a-z]+) is ([0-9]{6})\\.");
  for (std::sregex_iterator at(prompt.begin(), prompt.end(), needle), end; at != end; ++at) {
    if (question.find((*at)[1].str()) != std::string::npos) out += " " + (*at)[2].str() + ",";
  }
  return out;
}

TEST(HaystackTest, SentencesEndAtTheirMarks) {
  EXPECT_THAT(
      split_sentences("One is here. \"Two!\" Is\nthree  3.5 long? (Four.)\n\n= Title =\n\nno end"),
      ElementsAre("One is here.", "\"Two!\"", "Is three 3.5 long?", "(Four.)",
                  "= Title =", "no end"));
  EXPECT_TRUE(split_sentences(" \n\n ").empty());
}

TEST(HaystackTest, DrawsAreSeededWithDifferentCitiesAndNumbers) {
  const NeedleDraw draw = draw_needles(most_needles(), .25, 100, 3, 9);
  std::set<std::string> cities, numbers;
  for (const Needle& needle : draw.needles) {
    cities.insert(needle.city);
    numbers.insert(needle.number);
    EXPECT_EQ(needle.number.size(), 6U);
  }
  EXPECT_EQ(cities.size(), draw.needles.size());
  EXPECT_EQ(numbers.size(), draw.needles.size());
  EXPECT_EQ(draw.depths[0], .25);
  EXPECT_EQ(draw_needles(4, 0, 100, 3, 9).needles[0].number, draw.needles[0].number);
  EXPECT_NE(draw_needles(4, 0, 100, 4, 9).needles[0].number, draw.needles[0].number);
  EXPECT_NE(draw_needles(4, 0, 100, 3, 8).needles[0].number, draw.needles[0].number);
}

TEST(HaystackTest, NeedlesStandAtTheBoundaryNearestToTheirDepth) {
  const std::vector<std::string> sentences = {"A.", "B.", "C.", "D."};
  const std::vector<int32_t> tokens = {10, 10, 10, 10};
  const auto at = [&](double depth) {
    return build_haystack(sentences, tokens, {{{"Oslo", "123456"}}, 0, {depth}});
  };
  const std::string needle = "The magic number of Oslo is 123456.";
  EXPECT_EQ(at(0), needle + " A. B. C. D.");
  EXPECT_EQ(at(.26), "A. " + needle + " B. C. D.");
  EXPECT_EQ(at(.5), "A. B. " + needle + " C. D.");
  EXPECT_EQ(at(1), "A. B. C. D. " + needle);
}

TEST(HaystackTest, OnlyWholeStringsOfDigitsCount) {
  const std::vector<Needle> needles = {{"Oslo", "123456"}, {"Lima", "654321"}, {"Rome", "111111"}};
  EXPECT_EQ(numbers_found("They are 654321 and 123456.", needles, 2), 2);
  EXPECT_EQ(numbers_found("1234567 0123456 123,456", needles, 2), 0);
  EXPECT_EQ(numbers_found("x123456y 111111", needles, 2), 1);  // the third is not asked for
  EXPECT_EQ(numbers_found("", needles, 3), 0);
  EXPECT_EQ(ask_for(needles, 1).question, "What is the magic number of Oslo?");
  EXPECT_EQ(ask_for(needles, 3).beginning, "The magic numbers of Oslo, Lima and Rome are");
}

// Enough for 64K tokens without a repetition, and nothing in it that an answer could be taken from.
TEST(ShippedTextTest, IsProseWithoutARepetitionADigitOrANeedlesCity) {
  const TextFile file = shipped_text();
  ASSERT_EQ(file.documents.size(), 1U);
  const std::string& text = file.documents[0].text;
  EXPECT_GT(text.size(), 500'000U);
  EXPECT_LT(text.size(), 700'000U);
  EXPECT_EQ(text.find_first_of("0123456789{}"), std::string::npos);
  const NeedleDraw all = draw_needles(most_needles(), 0, 1, 0, 0);
  for (const Needle& needle : all.needles)
    EXPECT_EQ(text.find(needle.city), std::string::npos) << needle.city;

  const std::vector<std::string> sentences = split_sentences(text);
  EXPECT_GE(sentences.size(), 6000U);
  EXPECT_EQ(std::set<std::string>(sentences.begin(), sentences.end()).size(), sentences.size());
  std::set<std::string> words;
  const std::regex sentence("[A-Z][a-z',-]*( [a-z',-]+)+\\.");
  for (size_t i = 0; i < sentences.size(); i += 7) {
    EXPECT_TRUE(std::regex_match(sentences[i], sentence)) << sentences[i];
    EXPECT_LT(sentences[i].size(), 200U) << sentences[i];
  }
  const std::regex word("[a-z]+");
  for (std::sregex_iterator at(text.begin(), text.begin() + 100'000, word), end; at != end; ++at)
    words.insert(at->str());
  EXPECT_GT(words.size(), 400U);
}

TEST(ShippedTextTest, IsTheSameEveryTime) {
  const std::string text = shipped_text().documents.at(0).text;
  EXPECT_EQ(shipped_text().documents.at(0).text, text);
  EXPECT_EQ(shipped_text_sha256(), base::sha256_hex(text));
  // Made apart from the same words, in Python, with a Philox of its own. Another text is another
  // evaluation: what was measured before it can't be compared with what comes after.
  EXPECT_EQ(shipped_text_sha256(),
            "7eea1a81d7808c8061c9366918f6dd1eaf77ff8905bd56b2062d251ad273d139");
  EXPECT_THAT(text, StartsWith("Between the clock tower and the old quarry there was only a shady "
                               "lane. While snow covered the lower fields, the postmistress "
                               "painted a box of brass hinges. "));
}

TEST(MultiNeedleTest, HidesItsNeedlesInTheShippedText) {
  FakeSubject subject;
  subject.answer = perfect;
  MultiNeedle task({.lengths = {4000}, .depths_percent = {50}, .samples_per_cell = 2},
                   shipped_text());
  const Evaluation found = run(task, {&subject});
  EXPECT_EQ(row_of(found, "all").value, 1);
  ASSERT_EQ(subject.prompts.size(), 2U);
  EXPECT_NE(subject.prompts[0].substr(0, 200), subject.prompts[1].substr(0, 200));
}

TEST(MultiNeedleTest, GridOfAModelThatReadsOnlyTheEnd) {
  FakeSubject perfect_one("perfect"), forgetful("forgetful");
  perfect_one.answer = perfect;
  forgetful.answer = [](const std::string& prompt) {
    return perfect(prompt.substr(prompt.size() / 2));
  };
  MultiNeedle task({.lengths = {800, 1600},
                    .depths_percent = {0, 100},
                    .needles = 3,
                    .queries = 1,
                    .samples_per_cell = 10},
                   filler());
  const Evaluation found = run(task, {&perfect_one, &forgetful});
  EXPECT_EQ(row_of(found, "accuracy", "perfect").value, 1);
  EXPECT_EQ(row_of(found, "accuracy", "perfect").n, 40);
  EXPECT_EQ(row_of(found, "accuracy", "perfect").kind, IntervalKind::kWilson);
  const auto cell = [&](const char* length, const char* depth) {
    return row_of(found, "accuracy", "forgetful", {{"length", length}, {"depth", depth}});
  };
  EXPECT_EQ(cell("800", "0").value, 0);
  EXPECT_EQ(cell("1600", "100").value, 1);
  EXPECT_EQ(cell("1600", "100").comparison->verdict, Verdict::kNoDifference);
  EXPECT_EQ(cell("1600", "0").comparison->verdict, Verdict::kWorse);
  EXPECT_EQ(row_of(found, "all", "forgetful", {{"length", "800"}}).value, .5);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("10 samples a cell")));
}

// Each of several numbers of needles has the rows that a run of it alone would have.
TEST(MultiNeedleTest, SeveralNumbersOfNeedlesHaveAGridEach) {
  const auto forgetful = [](const std::string& prompt) {
    return perfect(prompt.substr(prompt.size() / 2));
  };
  const MultiNeedle::Options grid = {
      .lengths = {800, 1600}, .depths_percent = {0, 100}, .samples_per_cell = 5};
  MultiNeedle::Options several = grid;
  several.needle_counts = {1, 4};
  EXPECT_EQ(MultiNeedle::settings_text(several), "1 needle, 1 asked for; 4 needles, 2 asked for");
  several.query_counts = {1, 3};
  FakeSubject both;
  both.answer = forgetful;
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  MultiNeedle together(several, filler());
  const Evaluation found = run(together, {&both}, hooks);

  std::vector<std::string> prompts;
  for (const auto& [needles, queries] : {std::pair(1, 1), std::pair(4, 3)}) {
    FakeSubject one;
    one.answer = forgetful;
    MultiNeedle::Options single = grid;
    single.needles = needles;
    single.queries = queries;
    MultiNeedle task(single, filler());
    const Evaluation alone = run(task, {&one});
    prompts.insert(prompts.end(), one.prompts.begin(), one.prompts.end());
    for (const ResultRow& row : alone.rows) {
      Dims dims = row.dims;
      dims.emplace(dims.begin(), "needles", std::to_string(needles));
      const ResultRow same = row_of(found, row.metric, "base", dims);
      EXPECT_DOUBLE_EQ(same.value, row.value) << row.metric;
      EXPECT_EQ(same.n, row.n) << row.metric;
    }
  }
  EXPECT_EQ(both.prompts, prompts);
  // Nothing is over different numbers of needles, and a sample says which is its own.
  EXPECT_THROW(row_of(found, "accuracy"), std::runtime_error);
  ASSERT_EQ(samples.size(), 40U);
  EXPECT_EQ(samples[20].dims, (Dims{{"needles", "4"}, {"length", "800"}, {"depth", "0"}}));
  EXPECT_EQ(samples[20].item, 20);
  const auto maps = heat_maps_of(found.rows, "accuracy", "base");
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_THAT(maps[0], StartsWith("accuracy, base, needles 1 "));
  EXPECT_THAT(maps[1], StartsWith("accuracy, base, needles 4 "));
  EXPECT_EQ(maps[1], heat_map(found.rows, "accuracy", "base", "4"));
}

TEST(PromptPartsTest, EachTokenBelongsToThePartOfItsLastByte) {
  const std::vector<std::string> needles = {"B is 2.", "A is 1."};
  //                         0    5  8      15   20      28
  const std::string text = "x <u>Hay. A is 1. More. B is 2. End.\n\nQ";
  const std::string haystack = "Hay. A is 1. More. B is 2. End.";
  using enum PromptPart;
  // BOS has no text. " A" and " B" begin with the filler's blank, ". E" ends in filler.
  const std::vector<uint32_t> starts = {0, 5, 9, 11, 17, 23, 25, 30, 33, 38};
  const std::vector<PromptPart> wanted = {kFirstToken,   kQuestion, kFiller,  kOtherNeedles,
                                          kOtherNeedles, kFiller,   kAnswer,  kAnswer,
                                          kFiller,       kQuestion, kQuestion};
  std::vector<uint8_t> numbers;
  for (const PromptPart part : wanted) numbers.push_back(static_cast<uint8_t>(part));
  const NeedleText prompt{.text = text, .haystack = haystack, .needles = needles};
  EXPECT_EQ(prompt_parts(prompt, starts, 11), numbers);
  // Without BOS the text's first token is the first.
  numbers.erase(numbers.begin());
  numbers[0] = static_cast<uint8_t>(kFirstToken);
  EXPECT_EQ(prompt_parts(prompt, starts, 10), numbers);
  const std::string other = "a template that trims";
  EXPECT_THROW(prompt_parts({.text = other, .haystack = haystack, .needles = needles}, starts, 10),
               std::runtime_error);
}

// Tokens are bytes, and an even attention falls on each part as its bytes.
TEST(MultiNeedleTest, AttentionIsSharedOutAmongFiveParts) {
  FakeSubject base("base"), sharp("sharp");
  sharp.attention = [](const std::vector<uint8_t>&) {
    return std::vector<double>{.5, .1, .2, .1, .1};
  };
  sharp.attention_magnitudes = true;
  MultiNeedle task({.lengths = {800},
                    .depths_percent = {0, 50},
                    .needles = 3,
                    .queries = 2,
                    .samples_per_cell = 5},
                   filler());
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  const Evaluation found = run(task, {&base, &sharp}, hooks);

  double total = 0;
  const std::vector<std::string> parts = {"answer", "other_needles", "first_token", "question",
                                          "filler"};
  for (const std::string& part : parts) {
    total += row_of(found, "attention_" + part).value;
    EXPECT_EQ(row_of(found, "attention_" + part).kind, IntervalKind::kBootstrap);
  }
  EXPECT_NEAR(total, 1, 1e-12);
  double answer = 0, others = 0, question = 0;
  for (size_t i = 0; i < 10; ++i) {
    const std::string& prompt = base.prompts[i];
    const auto size = static_cast<double>(prompt.size());
    // "The magic numbers of X and Y are": X's needle is the answer's.
    const size_t begin = prompt.rfind("numbers of ") + 11;
    const std::string city = prompt.substr(begin, prompt.find(' ', begin) - begin);
    const std::regex needle("The magic number of ([A-Z][a-z]+) is [0-9]{6}\\.");
    for (std::sregex_iterator at(prompt.begin(), prompt.end(), needle), end; at != end; ++at) {
      const double first = at->position() == 0 ? 1 : 0;  // that byte is the first token's
      const double bytes = (static_cast<double>(at->length()) - first) / size / 10;
      ((*at)[1].str() == city ? answer : others) += bytes;
    }
    question += static_cast<double>(prompt.size() - prompt.rfind("\n\nQuestion")) / size / 10;
  }
  EXPECT_NEAR(row_of(found, "attention_answer").value, answer, 1e-12);
  EXPECT_NEAR(row_of(found, "attention_other_needles").value, others, 1e-12);
  EXPECT_NEAR(row_of(found, "attention_question").value, question, 1e-12);
  EXPECT_NEAR(row_of(found, "attention_noise").value,
              others + row_of(found, "attention_filler").value, 1e-12);

  const auto verdict = [&](const char* metric) {
    return row_of(found, metric, "sharp").comparison->verdict;
  };
  EXPECT_EQ(verdict("attention_answer"), Verdict::kBetter);
  EXPECT_EQ(verdict("attention_noise"), Verdict::kBetter);
  EXPECT_EQ(verdict("attention_first_token"), Verdict::kDifferent);
  EXPECT_NEAR(row_of(found, "attention_noise", "sharp", {{"length", "800"}, {"depth", "50"}}).value,
              .2, 1e-12);
  EXPECT_THAT(found.notes, ::testing::Contains(HasSubstr("attention of sharp: some of its weights "
                                                         "are below 0")));
  ASSERT_EQ(samples.size(), 20U);
  EXPECT_THAT(samples.back().attention,
              ElementsAre(Pair("answer", .5), Pair("other_needles", .1), Pair("first_token", .2),
                          Pair("question", .1), Pair("filler", .1)));
}

TEST(MultiNeedleTest, PromptsFillTheirLengthAndAreTheSameForEverySubject) {
  FakeSubject a("a"), b("b");
  MultiNeedle task({.lengths = {700, 5000},
                    .depths_percent = {50},
                    .needles = 4,
                    .queries = 2,
                    .samples_per_cell = 5},
                   filler());
  run(task, {&a, &b});
  EXPECT_EQ(a.prompts, b.prompts);
  ASSERT_EQ(a.prompts.size(), 10U);
  const size_t answer = 16 * 2 + 8, sentence = 30;
  for (size_t i = 0; i < 10; ++i) {
    const size_t length = i < 5 ? 700 : 5000;
    EXPECT_LE(a.prompts[i].size() + answer, length);
    EXPECT_GT(a.prompts[i].size() + answer + sentence, length);
    EXPECT_THAT(a.prompts[i],
                ::testing::ContainsRegex("\nAnswer: The magic numbers of [A-Z][a-z]+ and "
                                         "[A-Z][a-z]+ are$"));
  }
  EXPECT_NE(a.prompts[0], a.prompts[1]);
  // The longer ones need the filler twice over.
  EXPECT_THAT(a.prompts[9], AllOf(HasSubstr("sentence 59 of them. "), HasSubstr("sentence 0 of")));
}

TEST(MultiNeedleTest, AsksThroughTheChatTemplate) {
  FakeSubject subject;
  MultiNeedle task({.lengths = {600},
                    .depths_percent = {50},
                    .needles = 2,
                    .queries = 1,
                    .samples_per_cell = 1,
                    .chat = true},
                   filler());
  run(task, {&subject});
  EXPECT_THAT(subject.prompts[0], AllOf(StartsWith("<user>"), EndsWith("<assistant>")));
}

TEST(MultiNeedleTest, RefusesWhatCannotBe) {
  FakeSubject subject("base", 2000);
  const auto refusal = [&](MultiNeedle::Options options) {
    try {
      MultiNeedle task(std::move(options), filler());
      run(task, {&subject});
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refusal({.lengths = {4096}}),
              AllOf(HasSubstr("4096"), HasSubstr("2000"), HasSubstr("--allow-extrapolation")));
  EXPECT_THAT(refusal({.lengths = {1500, 100}}),
              AllOf(HasSubstr("the needles do not fit"), HasSubstr("length is 100"),
                    HasSubstr("--n-needles")));
  EXPECT_TRUE(subject.prompts.empty());  // before anything was computed
  EXPECT_THAT(refusal({.needles = 65}), HasSubstr("--n-needles must be from 1 to 64"));
  EXPECT_THAT(refusal({.needles = 2, .queries = 3}), HasSubstr("--n-queries"));
  EXPECT_THAT(refusal({.needle_counts = {4, 65}}), HasSubstr("--n-needles must be from 1 to 64"));
  EXPECT_THAT(refusal({.needle_counts = {4, 2, 4}}), HasSubstr("--n-needles names 4 twice"));
  EXPECT_THAT(refusal({.needle_counts = {1, 4}, .query_counts = {2}}),
              HasSubstr("--n-queries must be from 1 to the 1 needles, got 2"));
  EXPECT_THAT(refusal({.needle_counts = {1, 2, 4}, .query_counts = {1, 2}}),
              HasSubstr("one for each of the 3 of --n-needles, got 2"));
  EXPECT_THAT(refusal({.lengths = {200}, .needle_counts = {1, 20}}),
              HasSubstr("the needles do not fit: 20 needles"));
  EXPECT_THAT(refusal({.depths_percent = {101}}), HasSubstr("--depths-percent"));
  MultiNeedle wordy({.lengths = {2000}, .samples_per_cell = 1},
                    {{{1, std::string(5000, 'x'), {}, {}}}, true});
  EXPECT_THROW(run(wordy, {&subject}), std::runtime_error);
}

TEST(MultiNeedleTest, LengthsBeyondTheModelsAreNamed) {
  FakeSubject subject("base", 1000);
  MultiNeedle task({.lengths = {800, 1200, 1600},
                    .depths_percent = {50},
                    .samples_per_cell = 1,
                    .allow_extrapolation = true},
                   filler());
  const Evaluation found = run(task, {&subject});
  EXPECT_EQ(row_of(found, "accuracy", "base", {{"length", "1600"}}).n, 1);
  EXPECT_THAT(found.notes, ::testing::Contains(AllOf(
                               HasSubstr("rows of length 1200, 1600 are beyond the 1000 tokens"),
                               StartsWith("extrapolated"))));
}

TEST(MultiNeedleTest, LengthsGoUpToTheModelsLimit) {
  FakeSubject subject("base", 4096);
  MultiNeedle task({.depths_percent = {0}, .samples_per_cell = 1}, filler());
  const Evaluation found = run(task, {&subject});
  for (const char* length : {"1024", "2048", "4096"})
    EXPECT_EQ(row_of(found, "accuracy", "base", {{"length", length}}).n, 1)
        << "prompts, not the two numbers that each asks for";
}

}  // namespace
}  // namespace dex::evaluate
