// Files meant to hurt: each must end quickly, in bounded memory, with a finding that names it.
#include <sys/resource.h>

#include <ctime>

#include "tests/support/sanitizer.h"
#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

using std::literals::operator""s;

int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Of the process: other work on the machine must not fail a test.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Feeds `piece` `times` times; checks time and the growth of memory.
Report feed_many(std::string_view head, std::string_view piece, int64_t times,
                 Validator::Options options = {}) {
  const int64_t memory = peak_rss_bytes();
  const double start = cpu_seconds();
  Validator validator(std::move(options));
  validator.feed(head);
  for (int64_t i = 0; i < times; ++i) validator.feed(piece);
  const Report report = validator.finish();
  if (!support::kSanitized) {
    EXPECT_LT(cpu_seconds() - start, 10);
    EXPECT_LT(peak_rss_bytes() - memory, 300 << 20);
  }
  return report;
}

TEST(HostileFileTest, ALineOfTenMegabytes) {
  const std::string megabyte(1 << 20, 'x');
  const Report report = feed_many(text_rows(12) + "{\"text\": \"", megabyte, 10);
  EXPECT_EQ(only(report, "line_too_long").line, 13);
  EXPECT_FALSE(report.ready);
  EXPECT_NE(only(report, "line_too_long").message.find("10485770 bytes, at most 8388608"),
            std::string::npos);
}

TEST(HostileFileTest, ALineOfAGigabyteKeepsEightMegabytes) {
  const std::string megabyte(1 << 20, 'x');
  EXPECT_EQ(count_of(feed_many("", megabyte, 1024), "line_too_long"), 1);
}

TEST(HostileFileTest, ALineOfExactlyTheLimitIsRead) {
  const std::string line = "{\"text\": \"" + std::string((8 << 20) - 12, 'x') + "\"}\n";
  ASSERT_EQ(line.size(), (8u << 20) + 1);
  EXPECT_TRUE(check(text_rows(12) + line).ready);
  EXPECT_FALSE(check(text_rows(12) + "{\"text\": \"y" + line.substr(10)).ready);
}

TEST(HostileFileTest, TenMillionBlankLines) {
  const Report report = feed_many("", std::string(1 << 20, '\n'), 10);
  EXPECT_EQ(count_of(report, "blank_line"), 10 << 20);
  EXPECT_EQ(report.findings.size(), 1000u);
  EXPECT_EQ(report.first_findings.front().code, "empty_file");  // not hidden by a thousand warnings
  EXPECT_FALSE(report.ready);
}

TEST(HostileFileTest, AnErrorAfterAMillionWarningsIsShown) {
  const Report report = check(std::string(1 << 20, '\n') + text_rows(12) + "oops\n");
  EXPECT_EQ(only(report, "invalid_json").line, (1 << 20) + 13);
}

TEST(HostileFileTest, CrowdedLines) {
  const auto fill = [](std::string_view piece) {
    std::string line = "{\"text\": [";
    while (line.size() + piece.size() + 8 < (8u << 20)) line += piece;
    return line + "0]}\n";
  };
  EXPECT_EQ(count_of(feed_many(fill("[],"), "", 0), "wrong_type"), 1);
  EXPECT_EQ(count_of(feed_many(fill("0,"), "", 0), "wrong_type"), 1);
  std::string keys = "{";
  for (int i = 0; keys.size() < (7u << 20); ++i) keys += "\"" + std::to_string(i) + "\":0,";
  const Report many = feed_many(keys + "\"text\": \"a\"}\n", "", 0);
  EXPECT_GT(count_of(many, "unknown_key"), 500000);
  EXPECT_EQ(many.findings.size(), 1000u);
  std::string same = "{";
  while (same.size() < (7u << 20)) same += "\"a\":0,";
  EXPECT_GT(count_of(feed_many(same + "\"text\": \"a\"}\n", "", 0), "duplicate_key"), 500000);
}

TEST(HostileFileTest, DeepNesting) {
  EXPECT_EQ(count_of(feed_many("", std::string(1 << 20, '['), 7), "nesting_too_deep"), 1);
  std::string objects;
  for (int i = 0; i < 500000; ++i) objects += "{\"a\":";
  EXPECT_EQ(count_of(check(objects + "\n"), "nesting_too_deep"), 1);
}

TEST(HostileFileTest, LongKeysAndManyTags) {
  const std::string key(1 << 20, 'k');
  const Report report = check("{\"" + key + "\": 1, \"text\": \"a\"}\n");
  EXPECT_LT(only(report, "unknown_key").message.size(), 300u);
  std::string file;
  for (int i = 0; i < 20000; ++i) {
    file += "{\"text\": \"" + std::to_string(i) + "\", \"tag\": \"" + std::to_string(i) + "\"}\n";
  }
  EXPECT_LE(check(file).statistics.rows_by_tag.all().size(), 10001u);
}

TEST(HostileFileTest, BinaryRubbish) {
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 1 << 20; ++i)
    noise += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  const Report report = check(noise);
  EXPECT_FALSE(report.ready);
  EXPECT_LE(report.findings.size(), 1000u);
  for (const Finding& finding : report.findings) EXPECT_LE(finding.excerpt.size(), 480u);
}

TEST(HostileFileTest, MixedLineEndsAndNul) {
  const Report report =
      check(text_rows(12) + "{\"text\": \"a\"}\r\n{\"text\": \"b\"}\r{\"text\": \"c\"}\n\0\0\0\n"s);
  EXPECT_EQ(count_of(report, "crlf_line_endings"), 1);
  EXPECT_EQ(only(report, "invalid_json").line, 14);  // a bare CR ends no line
  EXPECT_EQ(only(report, "nul_byte").line, 15);
}

}  // namespace
}  // namespace dex::data
