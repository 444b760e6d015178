#include "services/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "services/base/errno_status.h"
#include "services/base/process_lock.h"
#include "tests/support/content_of.h"
#include "tests/support/failing_file_layer.h"
#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

using support::content_of;

TEST(ReadFileTest, RefusesWhatIsTooLargeMissingOrNotAFile) {
  const support::TemporaryDirectory directory;
  std::ofstream(directory / "f") << "12345";
  EXPECT_EQ(read_file(directory / "f", 5).value(), "12345");
  EXPECT_EQ(read_file(directory / "f", 4).status().reason(), "TOO_LARGE");
  EXPECT_EQ(read_file(directory / "g", 4).status().reason(), "FILE_MISSING");
  EXPECT_EQ(read_file(directory.path(), 4).status().reason(), "NOT_A_FILE");
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(directory / "fifo", 4).status().reason(), "NOT_A_FILE");
}

TEST(WriteFileAtomicallyTest, ReplacesContentAndLeavesNoTemporary) {
  const support::TemporaryDirectory directory;
  ASSERT_TRUE(write_file_atomically(directory / "f", "old", 0600).ok());
  ASSERT_TRUE(write_file_atomically(directory / "f", "new", 0600).ok());
  EXPECT_EQ(content_of(directory / "f"), "new");
  struct stat info {};
  ASSERT_EQ(stat((directory / "f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(fs::exists(directory / "f.tmp"));
}

// Each call fails once with a full disk: the old content stands, unless the new one is already
// whole, and the reason is recognisable.
TEST(WriteFileAtomicallyTest, AFailureAtAnyCallLeavesOldOrNew) {
  const support::TemporaryDirectory directory;
  const auto path = directory / "f";
  int failures = 0;
  for (int n = 1;; ++n) {
    ASSERT_TRUE(write_file_atomically(path, "old").ok());
    support::FailingFileLayer layer(n, ENOSPC, false);
    const auto status = write_file_atomically(path, "new", 0644, layer);
    if (layer.calls() < n) break;
    const auto content = content_of(path);
    EXPECT_TRUE(content == "old" || content == "new") << n << ": " << content;
    EXPECT_FALSE(fs::exists(directory / "f.tmp")) << n;
    // Two calls may fail unnoticed: removing an old temporary, closing the synced directory.
    if (!status.ok()) {
      EXPECT_EQ(status.reason(), "STORAGE_FULL") << n;
      ++failures;
    } else {
      EXPECT_EQ(content, "new") << n;
    }
  }
  EXPECT_GE(failures, 6);  // open, write, fsync, close, rename, open and fsync of the directory
}

TEST(FileWriterTest, RefusesAnExistingFileAndRemovesAnUnfinishedOne) {
  const support::TemporaryDirectory directory;
  std::ofstream(directory / "f") << "kept";
  EXPECT_EQ(FileWriter::create(directory / "f").status().reason(), "FILE_EXISTS");
  {
    auto writer = FileWriter::create(directory / "g");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append("half").ok());
  }
  EXPECT_FALSE(fs::exists(directory / "g"));
  EXPECT_EQ(content_of(directory / "f"), "kept");
}

TEST(FileWriterTest, KnowsSizeAndHashOfWhatItWrote) {
  const support::TemporaryDirectory directory;
  auto writer = FileWriter::create(directory / "f");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append("ab").ok());
  ASSERT_TRUE(writer->append("c").ok());
  ASSERT_TRUE(writer->close().ok());
  EXPECT_EQ(writer->size_bytes(), 3);
  EXPECT_EQ(writer->sha256(), sha256_hex("abc"));
  EXPECT_FALSE(writer->close().ok()) << "a second close is a mistake";
}

TEST(ErrnoStatusTest, NamesWhatJobsMdTellsApart) {
  EXPECT_EQ(errno_status(ENOSPC, "x").reason(), "STORAGE_FULL");
  EXPECT_EQ(errno_status(EDQUOT, "x").reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(errno_status(EFBIG, "x").reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(errno_status(EIO, "write f").to_string(),
            "INTERNAL (IO_ERROR): write f: Input/output error");
}

TEST(DirectoriesTest, MakeAndRemoveTreesWithoutFollowingLinks) {
  const support::TemporaryDirectory directory;
  ASSERT_TRUE(make_directories(directory / "a/b/c").ok());
  ASSERT_TRUE(make_directories(directory / "a/b/c").ok());
  fs::create_directory(directory / "outside");
  std::ofstream(directory / "outside/precious") << "1";
  fs::create_directory_symlink(directory / "outside", directory / "a/b/link");
  ASSERT_TRUE(remove_tree(directory / "a").ok());
  EXPECT_FALSE(fs::exists(directory / "a"));
  EXPECT_TRUE(fs::exists(directory / "outside/precious"));
  EXPECT_TRUE(remove_tree(directory / "a").ok()) << "missing is fine";
  EXPECT_EQ(make_directories(directory / "outside/precious/x").reason(), "FILE_MISSING");
}

TEST(FreeSpaceTest, IsPositiveAndAMissingPathIsAnError) {
  const support::TemporaryDirectory directory;
  EXPECT_GT(free_bytes(directory.path()).value(), 0);
  const double ratio = free_ratio(directory.path()).value();
  EXPECT_GT(ratio, 0.0);
  EXPECT_LE(ratio, 1.0);
  EXPECT_FALSE(free_bytes(directory / "none").ok());
}

TEST(ProcessLockTest, ASecondHolderIsToldWhoTheFirstIs) {
  const support::TemporaryDirectory directory;
  auto first = lock_file(directory / "lock");
  ASSERT_TRUE(first.ok());
  const auto second = lock_file(directory / "lock");
  EXPECT_EQ(second.status().reason(), "LOCKED");
  EXPECT_NE(second.status().message().find(std::to_string(getpid())), std::string::npos);
  first->reset();
  EXPECT_TRUE(lock_file(directory / "lock").ok());
}

}  // namespace
}  // namespace dex::base
