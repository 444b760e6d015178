#include "services/base/atomic_directory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/failing_file_layer.h"
#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

Status write_checkpoint(const fs::path& path, FileLayer& layer) {
  DEX_ASSIGN_OR_RETURN(auto directory, AtomicDirectory::create(path, layer));
  DEX_RETURN_IF_ERROR(directory.write("adapter.safetensors", std::string(10'000, 'a')));
  DEX_ASSIGN_OR_RETURN(auto writer, directory.open("optimizer.safetensors"));
  for (int i = 0; i < 3; ++i) DEX_RETURN_IF_ERROR(writer.append(std::string(1000, 'o')));
  DEX_RETURN_IF_ERROR(directory.finish(std::move(writer)));
  std::string manifest;
  for (const auto& entry : directory.entries()) manifest += entry.name + " " + entry.sha256 + "\n";
  return directory.commit("MANIFEST.json", manifest);
}

// What a reader does: the manifest decides whether the directory exists, and each hash must hold.
enum class Seen { kNothing, kWhole, kBroken };
Seen read_checkpoint(const fs::path& path) {
  if (!fs::exists(path / "MANIFEST.json")) {
    return fs::exists(path) ? Seen::kBroken : Seen::kNothing;
  }
  std::ifstream manifest(path / "MANIFEST.json");
  std::string name;
  std::string hash;
  int files = 0;
  while (manifest >> name >> hash) {
    const auto found = sha256_file(path / name);
    if (!found.ok() || found.value() != hash) return Seen::kBroken;
    ++files;
  }
  return files == 2 ? Seen::kWhole : Seen::kBroken;
}

TEST(AtomicDirectoryTest, IsThereWholeAfterCommit) {
  const support::TemporaryDirectory root;
  ASSERT_TRUE(write_checkpoint(root / "step-1", system_files()).ok());
  EXPECT_EQ(read_checkpoint(root / "step-1"), Seen::kWhole);
  EXPECT_FALSE(fs::exists(root / "step-1.tmp"));
  EXPECT_EQ(write_checkpoint(root / "step-1", system_files()).reason(), "FILE_EXISTS");
}

TEST(AtomicDirectoryTest, ASlashAtTheEndChangesNothing) {
  const support::TemporaryDirectory root;
  ASSERT_TRUE(write_checkpoint(root / "step-1/", system_files()).ok());
  EXPECT_EQ(read_checkpoint(root / "step-1"), Seen::kWhole);
  EXPECT_FALSE(fs::exists(root / "step-1.tmp"));
  EXPECT_EQ(write_checkpoint(root / "step-1/", system_files()).reason(), "FILE_EXISTS");
}

TEST(AtomicDirectoryTest, WithoutCommitNothingStays) {
  const support::TemporaryDirectory root;
  {
    auto directory = AtomicDirectory::create(root / "step-1");
    ASSERT_TRUE(directory.ok());
    ASSERT_TRUE(directory->write("a", "1").ok());
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

// P14: a writer that stops for good after the n-th call, n = 1 … all. The next writer must get
// through.
TEST(AtomicDirectoryTest, AWriterThatDiesAtAnyCallLeavesNothingOrTheWhole) {
  int points = 0;
  for (int n = 1;; ++n, ++points) {
    const support::TemporaryDirectory root;
    support::FailingFileLayer layer(n, EIO, true);
    const auto status = write_checkpoint(root / "step-1", layer);
    if (layer.calls() < n) break;
    const auto seen = read_checkpoint(root / "step-1");
    EXPECT_NE(seen, Seen::kBroken) << "died at call " << n;
    if (status.ok()) {
      EXPECT_EQ(seen, Seen::kWhole) << n;
    }
    if (seen == Seen::kNothing) {
      EXPECT_TRUE(write_checkpoint(root / "step-1", system_files()).ok()) << n;
    }
  }
  EXPECT_GE(points, 18);  // every call of three files, the directory, the rename and the parent
}

TEST(AtomicDirectoryTest, AFullDiskAtAnyCallIsNamedAndCleanedUp) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    for (int n = 1;; ++n) {
      const support::TemporaryDirectory root;
      support::FailingFileLayer layer(n, error, false);
      const auto status = write_checkpoint(root / "step-1", layer);
      if (layer.calls() < n) break;
      EXPECT_FALSE(fs::exists(root / "step-1.tmp")) << n;
      EXPECT_NE(read_checkpoint(root / "step-1"), Seen::kBroken) << n;
      if (!status.ok()) {
        EXPECT_EQ(status.reason(), error == ENOSPC ? "STORAGE_FULL" : "QUOTA_EXCEEDED") << n;
      }
    }
  }
}

TEST(AtomicDirectoryTest, NamesArePlainFileNames) {
  const support::TemporaryDirectory root;
  auto directory = AtomicDirectory::create(root / "d");
  ASSERT_TRUE(directory.ok());
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd"}) {
    EXPECT_FALSE(directory->write(name, "x").ok()) << name;
  }
}

}  // namespace
}  // namespace dex::base
