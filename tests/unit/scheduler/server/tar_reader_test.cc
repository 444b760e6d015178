// Archives that libarchive writes, as users' tools do; and those that must not be taken.

#include "scheduler/server/tar_reader.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/support/written_tar.h"

namespace dex::server {
namespace {

using support::written_tar;

class Kept final : public TarReader::Target {
 public:
  base::Status begin(const std::string& name, int64_t bytes) override {
    name_ = name;
    promised_ = bytes;
    files[name_].clear();
    return {};
  }
  base::Status append(std::string_view bytes) override {
    files[name_] += bytes;
    return {};
  }
  base::Status end() override {
    EXPECT_EQ(static_cast<int64_t>(files[name_].size()), promised_) << name_;
    ++ended;
    return {};
  }

  std::map<std::string, std::string> files;
  int ended = 0;

 private:
  std::string name_;
  int64_t promised_ = 0;
};

base::Status read_tar(const std::string& tar, Kept& kept, size_t step = 700) {
  TarReader reader(kept);
  for (size_t at = 0; at < tar.size(); at += step)
    DEX_RETURN_IF_ERROR(reader.feed(std::string_view(tar).substr(at, step)));
  return reader.finish();
}

base::Status refused_tar(const std::string& tar) {
  Kept kept;
  return read_tar(tar, kept);
}

TEST(TarReaderTest, FilesOfAnySizeComeBackInPiecesOfAnySize) {
  support::TarEntries entries;
  for (const size_t size : {0, 1, 511, 512, 513, 3000})
    entries.emplace_back("file" + std::to_string(size),
                         std::string(size, static_cast<char>('a' + size % 26)));
  for (const int format :
       {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_GNUTAR}) {
    const std::string tar = written_tar(entries, AE_IFREG, format);
    for (const size_t step : {1, 511, 512, 513, 100'000}) {
      Kept kept;
      const auto status = read_tar(tar, kept, step);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(kept.ended, 6);
      for (const auto& [name, content] : entries) EXPECT_EQ(kept.files.at(name), content) << name;
    }
  }
}

// As `tar -C DIR -c .` names them.
TEST(TarReaderTest, ALeadingDotSlashIsNoPath) {
  Kept kept;
  ASSERT_TRUE(read_tar(written_tar({{"./a", "1"}}), kept).ok());
  EXPECT_EQ(kept.files.at("a"), "1");
}

TEST(TarReaderTest, WhatCouldNameAPlaceIsRefused) {
  for (const char* name : {"../a", "/etc/passwd", "adapter/a", ".hidden", "./../a", "a b"}) {
    const auto status = refused_tar(written_tar({{name, "1"}}));
    EXPECT_EQ(status.reason(), "INVALID_FIELD") << name;
    EXPECT_NE(status.message().find("no plain name"), std::string::npos) << status.message();
  }
  EXPECT_EQ(refused_tar(written_tar({{"a", "/etc/passwd"}}, AE_IFLNK)).reason(), "INVALID_FIELD");
  EXPECT_EQ(refused_tar(written_tar({{"folder", ""}}, AE_IFDIR)).reason(), "INVALID_FIELD");
  EXPECT_EQ(refused_tar(written_tar({{"pipe", ""}}, AE_IFIFO)).reason(), "INVALID_FIELD");
  // A name that ustar can't hold is in an extended header, where it would change the place.
  const auto long_name = refused_tar(
      written_tar({{std::string(180, 'n'), "1"}}, AE_IFREG, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE));
  EXPECT_NE(long_name.message().find("extended header"), std::string::npos)
      << long_name.to_string();
}

TEST(TarReaderTest, WhatIsDamagedIsRefused) {
  const std::string good = written_tar({{"a", std::string(600, 'a')}});
  EXPECT_NE(refused_tar(good.substr(0, 512 + 300)).message().find("ended early"),
            std::string::npos);
  EXPECT_NE(refused_tar("").message().find("ended early"), std::string::npos);
  std::string flipped = good;
  flipped[3] = 'x';
  EXPECT_NE(refused_tar(flipped).message().find("checksum"), std::string::npos);
  EXPECT_NE(refused_tar(std::string(1024, 'z')).message().find("no tar"), std::string::npos);
}

TEST(TarReaderTest, ATargetThatFailsEndsTheReading) {
  class Full final : public TarReader::Target {
   public:
    base::Status begin(const std::string&, int64_t) override { return {}; }
    base::Status append(std::string_view) override { return base::internal("the disk is full"); }
    base::Status end() override { return {}; }
  };
  Full full;
  TarReader reader(full);
  EXPECT_EQ(reader.feed(written_tar({{"a", "1"}})).message(), "the disk is full");
}

}  // namespace
}  // namespace dex::server
