#include "worker/evaluate/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/unit/worker/evaluate/fake_subject.h"
#include "worker/evaluate/perplexity_windows.h"

namespace dex::evaluate {
namespace {

using testing::FakeSubject;
using ::testing::HasSubstr;
using testing::row_of;
using testing::run;

TextFile raw_text(std::string text) {
  return {{{1, std::move(text), {}, {}}}, true};
}

// method.md §10 item 18, first half.
TEST(PerplexityWindowsTest, ScoreEveryTokenButTheFirstOnceWithEnoughBeforeIt) {
  struct Case {
    int32_t tokens, width, stride;
  };
  for (const auto& [tokens, width, stride] : std::vector<Case>{{2, 2, 1},
                                                               {3, 2, 1},
                                                               {100, 16, 8},
                                                               {100, 16, 15},
                                                               {97, 16, 1},
                                                               {16, 16, 8},
                                                               {17, 16, 8},
                                                               {5, 2048, 1024},
                                                               {3218, 1024, 512}}) {
    std::vector<int> scored(static_cast<size_t>(tokens), 0);
    int forwards = 0;
    for (const Window& window : perplexity_windows(tokens, width, stride)) {
      EXPECT_LE(window.end - window.begin, width);
      EXPECT_GE(window.first, window.begin + 1);
      for (int32_t i = window.first; i < window.end; ++i) {
        ++scored[static_cast<size_t>(i)];
        if (forwards > 0) {
          EXPECT_GE(i - window.begin, width - stride);
        }
      }
      ++forwards;
    }
    EXPECT_EQ(scored[0], 0);
    for (size_t i = 1; i < scored.size(); ++i) EXPECT_EQ(scored[i], 1) << i << " of " << tokens;
  }
}

TEST(PerplexityWindowsTest, AStrideThatLeavesTokensOutIsRefused) {
  EXPECT_THROW(perplexity_windows(10, 8, 8), std::runtime_error);
  EXPECT_THROW(perplexity_windows(10, 8, 0), std::runtime_error);
  EXPECT_THROW(perplexity_windows(10, 1, 1), std::runtime_error);
}

// The other half: a uniform model gives the vocabulary's size.
TEST(PerplexityTest, AUniformModelGivesTheVocabularysSizeAndEightBitsAByte) {
  FakeSubject uniform;
  Perplexity task({.context_length = 64, .stride = 20}, raw_text(std::string(1000, 'x') + "yz"));
  const Evaluation found = run(task, {&uniform});
  EXPECT_NEAR(row_of(found, "perplexity").value, 256, 1e-4);
  EXPECT_NEAR(row_of(found, "perplexity").interval->low, 256, 1e-4);
  EXPECT_NEAR(row_of(found, "loss").value, std::log(256.0), 1e-6);
  EXPECT_NEAR(row_of(found, "bits_per_byte").value, 8, 1e-6);
  EXPECT_EQ(row_of(found, "loss").n, 4);  // blocks of 256 of the 1001 tokens
  EXPECT_THAT(found.notes[0], HasSubstr("1001 tokens scored"));
}

TEST(PerplexityTest, ATokenIsScoredWithWhatItsWindowHolds) {
  // A model that is the surer the more it sees: −1/(tokens before).
  FakeSubject subject;
  subject.logprob = [](const auto&, size_t at) { return -1.0 / static_cast<double>(at); };
  Perplexity task({.context_length = 4, .stride = 2}, raw_text("abcdefg"));
  // Windows abcd, cdef, defg: 1 + 1/2 + 1/3, then 1/2 + 1/3, then 1/3.
  EXPECT_NEAR(row_of(run(task, {&subject}), "loss").value, 3.0 / 6, 1e-6);
}

TEST(PerplexityTest, BehindBosEveryTokenIsScored) {
  FakeSubject subject;
  subject.bos_id = 1;
  subject.logprob = [](const std::string& text, size_t at) {
    return text[at] == 'a' ? -1.0 : -3.0;
  };
  Perplexity task({}, raw_text("ab"));
  const Evaluation found = run(task, {&subject});
  EXPECT_NEAR(row_of(found, "loss").value, 2, 1e-6);
  EXPECT_NEAR(row_of(found, "bits_per_byte").value, 4 / (2 * std::numbers::ln2), 1e-6);
}

TEST(PerplexityTest, DocumentsAreTheUnitsAndGroups) {
  FakeSubject subject;
  subject.logprob = [](const std::string& text, size_t at) {
    return text[at] == 'd' ? -4.0 : -1.0;
  };
  TextFile file{{{1, "eee", "x", "en"}, {2, "ddd", "", "de"}, {3, "eeeeee", "", "en"}}, false};
  Perplexity task({.group_by = {"language"}}, file);
  std::vector<Sample> samples;
  Hooks hooks;
  hooks.sample = [&](const Sample& sample) { samples.push_back(sample); };
  const Evaluation found = run(task, {&subject}, hooks);
  const ResultRow all = row_of(found, "loss");
  // Joined by blank lines: 3 + 2 + 3 + 2 + 6 bytes, the first not scored; the blank lines belong to
  // the documents before them.
  EXPECT_NEAR(all.value, (12 + 3 * 4.0) / 15, 1e-6);
  EXPECT_EQ(all.n, 3);
  EXPECT_NEAR(row_of(found, "loss", "base", {{"language", "de"}}).value, (2 + 12.0) / 5, 1e-6);
  EXPECT_EQ(row_of(found, "loss", "base", {{"language", "en"}}).n, 2);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[1].line, 2);
}

// Bytes are tokens, blank lines belong to the document before them, and the first byte is not
// scored: 62 + 2 − 1 = 63, 62 + 2 = 64, 127 and 200.
TEST(PerplexityTest, DocumentsAreGroupedByTheirLength) {
  FakeSubject subject;
  subject.logprob = [](const std::string& text, size_t at) {
    return text[at] == 'd' ? -4.0 : -1.0;
  };
  TextFile file{{{1, std::string(62, 'e'), "", ""},
                 {2, std::string(62, 'd'), "", ""},
                 {3, std::string(125, 'e'), "", ""},
                 {4, std::string(200, 'd'), "", ""}},
                false};
  Perplexity task({.group_by = {"length_bucket"}}, file);
  const Evaluation found = run(task, {&subject});
  const auto loss = [&](const char* bucket) {
    return row_of(found, "loss", "base", {{"length_bucket", bucket}});
  };
  EXPECT_NEAR(loss("1-63").value, 1, 1e-6);
  EXPECT_NEAR(loss("64-127").value, (62 * 4.0 + 2 + 127) / (64 + 127), 1e-6);
  EXPECT_EQ(loss("64-127").n, 2);
  EXPECT_NEAR(loss("128-255").value, 4, 1e-6);

  Perplexity raw({.group_by = {"length_bucket"}}, raw_text(std::string(300, 'e')));
  const Evaluation without = run(raw, {&subject});
  EXPECT_EQ(without.rows.size(), 3U) << "plain text has no documents";
}

TEST(PerplexityTest, MaxTokensCutsTheText) {
  FakeSubject subject;
  Perplexity task({.max_tokens = 11}, raw_text("0123456789abcdefg"));
  EXPECT_THAT(run(task, {&subject}).notes[0], HasSubstr("10 tokens scored"));
}

TEST(PerplexityTest, RefusesWhatCannotBe) {
  FakeSubject subject("base", 32);
  const auto refusal = [&](Perplexity::Options options, const std::string& text) {
    Perplexity task(options, raw_text(text));
    try {
      run(task, {&subject});
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refusal({.context_length = 33}, "abc"), HasSubstr("--allow-extrapolation"));
  EXPECT_THAT(refusal({.context_length = 16, .stride = 16}, "abc"), HasSubstr("stride"));
  EXPECT_THAT(refusal({}, "a"), HasSubstr("single token"));
}

TEST(PerplexityTest, WhatWasScoredBeforeAStopIsKept) {
  std::stop_source stop;
  FakeSubject subject;
  int calls = 0;
  subject.before_each_call = [&] {
    if (++calls == 2) stop.request_stop();
  };
  Hooks hooks;
  hooks.stop = stop.get_token();
  Perplexity task({.context_length = 8192, .stride = 4096}, raw_text(std::string(20'000, 'x')));
  const Evaluation found = run(task, {&subject}, hooks);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(row_of(found, "loss").n, 31);  // whole blocks of the 8191 tokens of the first window
}

}  // namespace
}  // namespace dex::evaluate
