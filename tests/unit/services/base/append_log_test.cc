#include "services/base/append_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

namespace fs = std::filesystem;

std::string command(const std::vector<std::string>& words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words)
    text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

const std::string kSelect = command({"SELECT", "0"});
const std::string kWhole = command({"MULTI"}) + command({"SET", "a", "line\r\nline"}) +
                           command({"XADD", "events", "1-1", "exec", "MULTI"}) + command({"EXEC"});

std::optional<int64_t> torn(const std::string& text) {
  std::istringstream log(text);
  return torn_transaction(log);
}

TEST(AppendLogTest, WhereverATransactionIsTornItIsFoundFromItsBeginning) {
  const std::string before = kSelect + kWhole + command({"SET", "b", "1"});
  const auto begin = static_cast<int64_t>(before.size());
  const size_t multi = command({"MULTI"}).size();
  EXPECT_EQ(torn(before + kWhole), std::nullopt);
  for (size_t end = multi; end < kWhole.size(); ++end) {
    EXPECT_EQ(torn(before + kWhole.substr(0, end)), begin) << end;
  }
}

TEST(AppendLogTest, WhatIsTornOutsideOfATransactionIsLeftToRedis) {
  const size_t multi = command({"MULTI"}).size();
  for (size_t end = 0; end < multi; ++end) {
    EXPECT_EQ(torn(kSelect + kWhole + kWhole.substr(0, end)), std::nullopt) << end;
  }
  const std::string set = command({"SET", "b", "1"});
  for (size_t end = 0; end < set.size(); ++end) {
    EXPECT_EQ(torn(kWhole + set.substr(0, end)), std::nullopt) << end;
  }
  EXPECT_EQ(torn(""), std::nullopt);
}

TEST(AppendLogTest, AnotherFormatAndAnOldTearAreNobodysToCut) {
  const std::string half = command({"MULTI"}) + command({"SET", "a", "1"});
  EXPECT_EQ(torn(half + kWhole), std::nullopt);
  EXPECT_EQ(torn(half + kWhole.substr(0, kWhole.size() - 3)), std::nullopt);
  EXPECT_EQ(torn("REDIS0010 and more\n"), std::nullopt);
  EXPECT_EQ(torn(half + "+OK\r\n"), std::nullopt);
  // Lengths that Redis never writes: nobody's log, and no number to compute with.
  EXPECT_EQ(torn(half + "*1\r\n$9223372036854775807\r\nSET\r\n"), std::nullopt);
  EXPECT_EQ(torn(half + "*9223372036854775807\r\n$3\r\nSET\r\n"), std::nullopt);
  EXPECT_EQ(torn(half + "*" + std::string(1000, '1')), std::nullopt);
  EXPECT_EQ(torn(half + "*1\r\n:5\r\n"), std::nullopt);
  EXPECT_EQ(torn(half + "*x\r\n"), std::nullopt);
}

class CutTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_.path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Bytes that went, -1: an error.
  [[nodiscard]] int64_t cut() const {
    const auto bytes = cut_torn_transaction(folder_.path());
    return bytes.ok() ? *bytes : -1;
  }

  support::TemporaryDirectory folder_;
};

TEST_F(CutTest, OnlyTheNewestLogIsCut) {
  const std::string torn = kSelect + kWhole + kWhole.substr(0, 40);
  write("appendonly.aof.manifest",
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.10.incr.aof seq 10 type "
        "i\nfile appendonly.aof.9.incr.aof seq 9 type i\nfile appendonly.aof.11.incr.aof seq 11 "
        "type h\n");
  for (const char* number : {"9", "10", "11"})
    write("appendonly.aof." + std::string(number) + ".incr.aof", torn);
  EXPECT_EQ(cut(), 40);
  EXPECT_EQ(read("appendonly.aof.10.incr.aof"), kSelect + kWhole);
  EXPECT_EQ(read("appendonly.aof.9.incr.aof"), torn);
  EXPECT_EQ(read("appendonly.aof.11.incr.aof"), torn);
  EXPECT_EQ(cut(), 0);
}

TEST_F(CutTest, NothingIsThereYet) {
  EXPECT_EQ(cut(), 0);
  write("appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
  EXPECT_EQ(cut(), 0);
  EXPECT_FALSE(fs::exists(folder_.path() / "appendonly.aof.1.incr.aof"));
}

}  // namespace
}  // namespace dex::base
