#include "services/data/reader.h"

#include <sys/stat.h>

#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

TEST(RowReaderTest, GivesRowsInOrderAndThenTheReport) {
  const ScratchFolder folder;
  const auto path =
      folder.write("a.jsonl", text_rows(20000) + "{\"text\": 5}\n" + text_rows(3, 20000));
  const auto reader = RowReader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  int count = 0;
  while (true) {
    const auto row = (*reader)->next();
    ASSERT_TRUE(row.ok());
    if (!*row) break;
    ASSERT_EQ((*row)->content.text, "row " + std::to_string(count));
    ++count;
  }
  EXPECT_EQ(count, 20003);
  EXPECT_EQ((*reader)->report().statistics.rows_skipped, 1);
  EXPECT_FALSE((*(*reader)->next()).has_value());
}

TEST(RowReaderTest, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(RowReader::open(folder.path() / "missing").status().code(), base::Code::kNotFound);
  EXPECT_EQ(RowReader::open(folder.path()).status().reason(), "NOT_A_FILE");
  const auto fifo = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(RowReader::open(fifo).status().reason(), "NOT_A_FILE");  // and does not hang
  EXPECT_EQ(RowReader::open("/dev/zero").status().reason(), "NOT_A_FILE");
}

TEST(ValidateFileTest, ReportsAndStops) {
  const ScratchFolder folder;
  const auto path = folder.write("a.jsonl", text_rows(100));
  const auto report = validate_file(path);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->ready);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(validate_file(path, {}, stop.get_token()).status().code(), base::Code::kCancelled);
}

}  // namespace
}  // namespace dex::data
