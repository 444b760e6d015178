#include "worker/evaluate/kept_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/evaluate/report_text.h"

namespace dex::evaluate {
namespace {

Sample sample_of(const std::string& subject, int64_t item, double score) {
  return {.task = "answers",
          .subject = subject,
          .item = item,
          .dims = {{"order", "random 1"}},
          .prompt = "p" + std::to_string(item),
          .output = "o",
          .score = score};
}

std::vector<nlohmann::json> parsed(const std::string& lines) {
  std::vector<nlohmann::json> out;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    out.push_back(nlohmann::json::parse(lines.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

TEST(KeptSamplesTest, EachIsComparedWithTheBaselinesSameSample) {
  KeptSamples samples(0);
  EXPECT_EQ(samples.lines(), "");
  samples.add(sample_of("base", 0, 1));
  samples.add(sample_of("base", 1, 0.25));
  samples.add(sample_of("night", 0, 0));
  samples.add(sample_of("night", 1, 0.25));
  samples.add(sample_of("night", 2, 1));  // the baseline was not asked
  const auto lines = parsed(samples.lines());
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0]["subject"], "base");
  EXPECT_EQ(lines[1]["prompt"], "p1");
  EXPECT_FALSE(lines[0].contains("baseline_score"));
  EXPECT_EQ(lines[2]["subject"], "night");
  EXPECT_EQ(lines[2]["baseline_score"], 1.0);
  EXPECT_EQ(lines[2]["score"], 0.0);
  EXPECT_EQ(lines[3]["baseline_score"], 0.25);
  EXPECT_FALSE(lines[4].contains("baseline_score"));
}

TEST(KeptSamplesTest, OfManyASeededDrawIsKeptTheSameForEverySubject) {
  const auto kept = [](uint64_t seed, int64_t count) {
    KeptSamples samples(seed);
    for (const char* subject : {"base", "night"}) {
      for (int64_t item = 0; item < count; ++item) samples.add(sample_of(subject, item, 0));
    }
    std::vector<std::vector<int64_t>> items(2);
    for (const auto& line : parsed(samples.lines()))
      items[line["subject"] == "base" ? 0 : 1].push_back(line["item"].get<int64_t>());
    EXPECT_EQ(items[0], items[1]);
    EXPECT_TRUE(std::ranges::is_sorted(items[0]));
    return items[0];
  };
  EXPECT_EQ(kept(1, 256).size(), 256U);
  const auto drawn = kept(1, 10'000);
  EXPECT_EQ(drawn.size(), KeptSamples::kMost);
  EXPECT_EQ(drawn, kept(1, 10'000));
  EXPECT_NE(drawn, kept(2, 10'000));
  // Spread over the file: half of them from either half, within four standard deviations (8).
  const auto front = std::ranges::count_if(drawn, [](int64_t item) { return item < 5000; });
  EXPECT_NEAR(static_cast<double>(front), 128, 32);
}

TEST(KeptSamplesTest, LongTextsAreCutAndWhatIsStillTooLongIsLeftOut) {
  KeptSamples samples(0);
  Sample sample = sample_of("base", 0, 1);
  sample.prompt = std::string(5000, 'a') + "ä" + std::string(249, 'z');
  sample.expected = std::string(301, 'e');
  samples.add(sample);
  sample.item = 1;
  sample.dims = {{"category", std::string(KeptSamples::kLongestLine, 'c')}};
  samples.add(sample);
  const auto lines = parsed(samples.lines());
  ASSERT_EQ(lines.size(), 1U);
  // 250 bytes from the end would begin inside ä.
  EXPECT_EQ(lines[0]["prompt"], std::string(750, 'a') + " … " + std::string(249, 'z'));
  EXPECT_EQ(lines[0]["expected"], std::string(225, 'e') + " … " + std::string(75, 'e'));
}

}  // namespace
}  // namespace dex::evaluate
