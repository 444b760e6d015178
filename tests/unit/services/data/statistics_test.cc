#include "services/data/statistics.h"

#include "services/data/token_statistics.h"
#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

TEST(StatisticsTest, CountsWhatAFileHolds) {
  std::string file = text_rows(10);  // "row 0": 5 characters each
  file +=
      "{\"text\": \"éé\", \"tag\": \"t\", \"language\": \"fr\"}\n{\"text\": \"x\", \"tag\": "
      "\"t\"}\n\n{\"text\": 5}\n";
  const Report report = check(file);
  const Statistics& s = report.statistics;
  EXPECT_EQ(s.bytes, static_cast<int64_t>(file.size()));
  EXPECT_EQ(s.rows_good, 12);
  EXPECT_EQ(s.rows_skipped, 1);
  EXPECT_EQ(s.text_bytes, 50 + 4 + 1);
  EXPECT_EQ(s.characters, 50 + 2 + 1);
  EXPECT_EQ(s.tokens_guess, 10 * 2 + 1 + 1);
  EXPECT_EQ(s.longest_row_bytes, 5);
  EXPECT_EQ(s.rows_by_tag.all(), (std::map<std::string, int64_t>{{"t", 2}}));
  EXPECT_EQ(s.rows_by_language.all(), (std::map<std::string, int64_t>{{"fr", 1}}));
}

TEST(StatisticsTest, CountsTurnsAndKnownTokens) {
  EXPECT_EQ(check(chat_rows(10)).statistics.messages, 20);
  EXPECT_EQ(check(chat_rows(10)).statistics.most_messages, 2);
  EXPECT_EQ(check("{\"input_ids\": [1,2,3], \"labels\": [1,2,3]}\n").statistics.tokens_guess, 3);
}

TEST(NamedCountsTest, StaysBoundedAndGivesTheLargest) {
  NamedCounts counts;
  for (int i = 0; i < 20000; ++i) counts.add("n" + std::to_string(i), 1);
  counts.add("n5", 10);
  EXPECT_EQ(counts.all().size(), 10001u);
  EXPECT_EQ(counts.all().at("(other)"), 10000);
  EXPECT_EQ(counts.largest(2), (std::map<std::string, int64_t>{{"(other)", 10000}, {"n5", 11}}));
}

TEST(LengthDistributionTest, GivesExactQuantiles) {
  LengthDistribution lengths;
  EXPECT_EQ(lengths.quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) lengths.add(i);
  EXPECT_EQ(lengths.min(), 1);
  EXPECT_EQ(lengths.max(), 1000);
  EXPECT_DOUBLE_EQ(lengths.mean(), 500.5);
  EXPECT_EQ(lengths.quantile(0.5), 500);
  EXPECT_EQ(lengths.quantile(0.995), 995);
  EXPECT_EQ(lengths.quantile(1), 1000);
  EXPECT_EQ(lengths.quantile(0), 1);
  const auto buckets = lengths.histogram();
  ASSERT_EQ(buckets.size(), 7u);
  EXPECT_EQ(buckets[0].upper, 16);
  EXPECT_EQ(buckets[0].rows, 16);
  EXPECT_EQ(buckets[1].rows, 16);
  EXPECT_EQ(buckets[6].upper, 1024);
  EXPECT_EQ(buckets[6].rows, 488);
}

}  // namespace
}  // namespace dex::data
