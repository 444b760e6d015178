#include "services/base/memory_room.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A machine of files, where a test says what the kernel would.
class MemoryRoomTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void machine_has(int64_t mebibytes) {
    write("proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree:          1024 kB\nMemAvailable:   " +
              std::to_string(mebibytes * 1024) + " kB\n");
  }
  void group(const std::string& name, const std::string& limit, int64_t used_mebibytes,
             int64_t cache_mebibytes) {
    const std::string folder = "sys/fs/cgroup" + name;
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(used_mebibytes * kMiB) + "\n");
    write(folder + "/memory.stat", "anon 7\nfile 123456789\nfile_mapped 99\ninactive_file " +
                                       std::to_string(cache_mebibytes * kMiB) +
                                       "\nactive_file 0\n");
  }
  MemoryRoom room() { return memory_room(root_.path()); }

  support::TemporaryDirectory root_;
};

TEST_F(MemoryRoomTest, IsWhatTheMachineHasAvailable) {
  machine_has(300);
  EXPECT_EQ(room().bytes, 300 * kMiB);
  EXPECT_FALSE(room().of_container);
}

TEST_F(MemoryRoomTest, IsUnknownWhereNobodySays) {
  EXPECT_EQ(room().bytes, std::numeric_limits<int64_t>::max());
}

TEST_F(MemoryRoomTest, AGroupsLimitBindsWithoutItsPageCache) {
  machine_has(300);
  write("proc/self/cgroup", "1:name=systemd:/old\n0::/pods/worker\n");
  group("/pods/worker", std::to_string(100 * kMiB), 60, 20);
  EXPECT_EQ(room().bytes, 60 * kMiB);  // 100 - (60 - 20)
  EXPECT_TRUE(room().of_container);
  group("/pods/worker", "max", 60, 20);
  EXPECT_EQ(room().bytes, 300 * kMiB);
  group("/pods", std::to_string(50 * kMiB), 45, 0);  // of all pods together
  EXPECT_EQ(room().bytes, 5 * kMiB);
  group("/pods", std::to_string(50 * kMiB), 70, 0);  // lowered since
  EXPECT_EQ(room().bytes, 0);
}

// As inside a container, which sees its own group as the topmost.
TEST_F(MemoryRoomTest, TheTopmostGroupCounts) {
  machine_has(300);
  write("proc/self/cgroup", "0::/\n");
  group("", std::to_string(100 * kMiB), 10, 0);
  EXPECT_EQ(room().bytes, 90 * kMiB);
}

TEST(ThisMachineTest, HasSomeMemory) {
  EXPECT_GT(memory_room().bytes, 0);
}

}  // namespace
}  // namespace dex::base
