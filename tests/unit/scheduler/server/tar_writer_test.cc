// Archives against libarchive, which reads what users' tools read.

#include "scheduler/server/tar_writer.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace dex::server {
namespace {

struct Member {
  std::string bytes;
  bool regular = false;
  int mode = 0;
};

std::map<std::string, Member> read(const std::string& tar) {
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  archive_read_support_format_tar(reader.get());
  EXPECT_EQ(archive_read_open_memory(reader.get(), tar.data(), tar.size()), ARCHIVE_OK);
  std::map<std::string, Member> members;
  archive_entry* entry = nullptr;
  int got = ARCHIVE_OK;
  while ((got = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    Member& member = members[archive_entry_pathname(entry)];
    member.regular = archive_entry_filetype(entry) == AE_IFREG;
    member.mode = static_cast<int>(archive_entry_perm(entry));
    member.bytes.resize(static_cast<size_t>(archive_entry_size(entry)));
    EXPECT_EQ(archive_read_data(reader.get(), member.bytes.data(), member.bytes.size()),
              static_cast<la_ssize_t>(member.bytes.size()));
  }
  EXPECT_EQ(got, ARCHIVE_EOF) << archive_error_string(reader.get());
  return members;
}

TEST(TarWriterTest, FilesOfAnySizeComeBackAsTheyWere) {
  std::string tar;
  TarWriter writer([&](std::string_view piece) {
    tar += piece;
    return true;
  });
  std::map<std::string, std::string> files;
  for (const size_t size : {0, 1, 511, 512, 513, 3000})
    files["file" + std::to_string(size)] = std::string(size, static_cast<char>('a' + size % 26));
  files[std::string(99, 'n')] = "the longest name";
  for (const auto& [name, bytes] : files) {
    ASSERT_TRUE(writer.begin(name, static_cast<int64_t>(bytes.size())).ok()) << name;
    for (size_t at = 0; at < bytes.size(); at += 700)
      ASSERT_TRUE(writer.append(std::string_view(bytes).substr(at, 700)).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_EQ(tar.size() % 512, 0u);
  const auto members = read(tar);
  ASSERT_EQ(members.size(), files.size());
  for (const auto& [name, bytes] : files) {
    EXPECT_EQ(members.at(name).bytes, bytes) << name;
    EXPECT_TRUE(members.at(name).regular);
    EXPECT_EQ(members.at(name).mode, 0644);
  }
}

TEST(TarWriterTest, AFileThatChangedItsSizeWhileItWasReadIsAnError) {
  const auto take = [](std::string_view) { return true; };
  TarWriter shrunk(take);
  ASSERT_TRUE(shrunk.begin("weights", 10).ok());
  ASSERT_TRUE(shrunk.append("12345").ok());
  EXPECT_NE(shrunk.finish().message().find("5 bytes early"), std::string::npos);
  TarWriter grown(take);
  ASSERT_TRUE(grown.begin("weights", 3).ok());
  EXPECT_FALSE(grown.append("12345").ok());
}

TEST(TarWriterTest, WhatTheFormatCannotHoldIsRefusedNotCut) {
  TarWriter writer([](std::string_view) { return true; });
  EXPECT_FALSE(writer.begin("", 1).ok());
  EXPECT_FALSE(writer.begin(std::string(100, 'n'), 1).ok());
  EXPECT_FALSE(writer.begin("large", int64_t{1} << 33).ok());
  EXPECT_TRUE(writer.begin("largest", (int64_t{1} << 33) - 1).ok());
}

TEST(TarWriterTest, AReaderThatLeavesEndsTheWork) {
  TarWriter writer([](std::string_view) { return false; });
  const base::Status status = writer.begin("weights", 3);
  EXPECT_EQ(status.code(), base::Code::kCancelled);
  EXPECT_EQ(status.reason(), "CLIENT_CANCELLED");
}

}  // namespace
}  // namespace dex::server
