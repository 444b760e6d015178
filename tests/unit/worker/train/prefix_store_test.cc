// The frozen-prefix cache without a model: what an entry is called, which ones go, and files that
// are not what they were.
#include "worker/train/prefix_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/content_of.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "worker/train/prefix_entries.h"

namespace dex::train::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PrefixEntryNameTest, ChangesWithEveryPartOfTheKeyAndEveryToken) {
  const PrefixKey key{std::string(64, 'a'), std::string(64, 'b'), 15, "float32", "1 c, 2 threads"};
  const std::vector<int64_t> ids{3, 14, 15}, other_order{14, 3, 15}, longer{3, 14, 15, 0};
  std::set<std::string> names{prefix_entry_name(key, ids), prefix_entry_name(key, other_order),
                              prefix_entry_name(key, longer)};
  const std::vector<std::function<void(PrefixKey&)>> changes{
      [](PrefixKey& k) { k.base_weights_sha256[63] = '0'; },
      [](PrefixKey& k) { k.config_sha256[0] = '0'; }, [](PrefixKey& k) { k.layers = 14; },
      [](PrefixKey& k) { k.dtype = "bfloat16"; },
      [](PrefixKey& k) { k.computed_by = "1 c, 1 threads"; },
      // The same letters, cut elsewhere.
      [](PrefixKey& k) {
        k.dtype = "float321";
        k.computed_by = " c, 2 threads";
      }};
  for (const auto& change : changes) {
    PrefixKey other = key;
    change(other);
    names.insert(prefix_entry_name(other, ids));
  }
  EXPECT_EQ(names.size(), 3 + changes.size());
  EXPECT_EQ(prefix_entry_name(key, ids), prefix_entry_name(PrefixKey(key), ids));
  for (const std::string& name : names) EXPECT_EQ(name.size(), 64u);
}

std::vector<std::string> dropped(std::vector<PrefixEntry> entries, int64_t max_bytes,
                                 int64_t wanted, int64_t keep_since_ms) {
  std::vector<std::string> names;
  for (const auto& entry :
       prefix_entries_to_drop(std::move(entries), max_bytes, wanted, keep_since_ms))
    names.push_back(entry.name);
  return names;
}

TEST(PrefixEntriesToDropTest, TheLongestUnusedGoUntilItFits) {
  const std::vector<PrefixEntry> entries{
      {"c", 10, 30}, {"a", 10, 10}, {"d", 10, 40}, {"b", 10, 20}};
  EXPECT_THAT(dropped(entries, 50, 10, 100), IsEmpty());
  EXPECT_THAT(dropped(entries, 49, 10, 100), ElementsAre("a"));
  EXPECT_THAT(dropped(entries, 50, 11, 100), ElementsAre("a"));
  EXPECT_THAT(dropped(entries, 50, 25, 100), ElementsAre("a", "b"));
  EXPECT_THAT(dropped(entries, 5, 5, 100), ElementsAre("a", "b", "c", "d"));
  // Never what was used since.
  EXPECT_THAT(dropped(entries, 5, 5, 30), ElementsAre("a", "b"));
  EXPECT_THAT(dropped({{"y", 10, 10}, {"x", 10, 10}}, 20, 5, 100), ElementsAre("x"));
}

class PrefixStoreTest : public ::testing::Test {
 protected:
  static std::string name(char digit) { return std::string(64, digit); }
  PrefixStore store(int64_t max_bytes = 1 << 20, int64_t min_free_bytes = 0) {
    return PrefixStore({folder_, max_bytes, min_free_bytes}, clock_);
  }
  // What the store has under that name; empty: nothing.
  static std::string read(PrefixStore& store, char digit, size_t size) {
    std::string content(size, '?');
    return store.read(name(digit), content) ? content : "";
  }
  std::string file(char digit) const { return folder_ / name(digit); }
  std::set<std::string> files() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.insert(entry.path().filename().string());
    return found;
  }

  support::TemporaryDirectory directory_;
  fs::path folder_ = directory_ / "cache/prefix";  // not there yet
  support::ManualClock clock_;
};

TEST_F(PrefixStoreTest, GivesBackWhatItTookAlsoToOthers) {
  PrefixStore first = store();
  EXPECT_EQ(read(first, 'a', 5), "");
  first.write(name('a'), "hello");
  EXPECT_EQ(read(first, 'a', 5), "hello");
  PrefixStore second = store();
  EXPECT_EQ(read(second, 'a', 5), "hello");
  EXPECT_EQ(second.counts().hits, 1);
  EXPECT_EQ(first.counts().hits, 1);
  EXPECT_EQ(first.counts().misses, 1);
  EXPECT_EQ(first.counts().damaged, 0);
  EXPECT_EQ(first.counts().written_bytes, static_cast<int64_t>(fs::file_size(file('a'))));
  EXPECT_EQ(second.counts().read_bytes, first.counts().written_bytes);
  EXPECT_EQ(files(), std::set<std::string>{name('a')});  // no temporary is left
}

TEST_F(PrefixStoreTest, WhatIsNotWholeOrNotItsOwnIsAMissAndGoes) {
  const std::vector<std::function<void()>> damages{
      [&] { fs::resize_file(file('a'), fs::file_size(file('a')) - 1); },
      [&] { fs::resize_file(file('a'), 0); },
      [&] { std::ofstream(file('a'), std::ios::app) << "x"; },
      [&] {  // a byte of the content
        std::fstream out(file('a'), std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(-1, std::ios::end);
        out.put('0');
      },
      [&] {  // a byte of the hash
        std::fstream out(file('a'), std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(20);
        out.put('z');
      },
      // Whole, but another's.
      [&] { fs::copy_file(file('b'), file('a'), fs::copy_options::overwrite_existing); },
      [&] { std::ofstream(file('a')) << std::string(83, 'f'); },
  };
  PrefixStore store = this->store();
  store.write(name('b'), "world");
  int64_t count = 0;
  for (const auto& damage : damages) {
    store.write(name('a'), "hello");
    damage();
    EXPECT_EQ(read(store, 'a', 5), "") << count;
    EXPECT_EQ(store.counts().damaged, ++count);
    EXPECT_FALSE(fs::exists(file('a'))) << count;
  }
  store.write(name('a'), "hello");
  EXPECT_EQ(read(store, 'a', 6), "");  // of another size than is wanted
  EXPECT_EQ(store.counts().hits, 0);
  EXPECT_EQ(read(store, 'b', 5), "world");
}

TEST_F(PrefixStoreTest, StaysBelowItsBoundByDroppingTheLongestUnused) {
  // 78 bytes of header: three entries of 100 bytes fit.
  const std::string content(22, 'x');
  {
    PrefixStore before = store(300);
    for (const char digit : {'1', '2', '3'}) {
      before.write(name(digit), content);
      clock_.advance_ms(1000);
    }
    EXPECT_EQ(before.counts().dropped, 0);
    EXPECT_EQ(read(before, '1', 22), content);  // so 2 is the longest unused
  }
  clock_.advance_ms(1000);
  std::ofstream(folder_ / "notes.txt") << std::string(1000, 'n');  // not ours: neither counted
  PrefixStore later = store(300);
  later.write(name('4'), content);
  EXPECT_EQ(files(), (std::set<std::string>{name('1'), name('3'), name('4'), "notes.txt"}));
  clock_.advance_ms(1000);
  later.write(name('5'), content);
  EXPECT_EQ(files(), (std::set<std::string>{name('1'), name('4'), name('5'), "notes.txt"}));
  EXPECT_EQ(later.counts().dropped, 2);
  later.write(name('6'), content);
  EXPECT_EQ(later.full(), "");
  // Nothing is left that this job did not use: what it has is worth more than what it would get.
  later.write(name('7'), content);
  EXPECT_EQ(files(), (std::set<std::string>{name('4'), name('5'), name('6'), "notes.txt"}));
  EXPECT_THAT(later.full(), HasSubstr("300 bytes are full"));
  EXPECT_EQ(read(later, '4', 22), content);
}

TEST_F(PrefixStoreTest, AnEntryAboveTheBoundIsNotKept) {
  PrefixStore small = store(99);
  small.write(name('1'), std::string(22, 'x'));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(small.full(), "");  // a shorter row may fit
}

TEST_F(PrefixStoreTest, LeavesRoomOnTheDisk) {
  PrefixStore greedy = store(1 << 20, int64_t{1} << 60);
  greedy.write(name('1'), "hello");
  EXPECT_EQ(files(), std::set<std::string>{});
  EXPECT_THAT(greedy.full(), HasSubstr("are left to others"));
}

TEST_F(PrefixStoreTest, MayBeDeletedAtAnyTime) {
  PrefixStore store = this->store();
  store.write(name('1'), "hello");
  fs::remove_all(folder_);
  EXPECT_EQ(read(store, '1', 5), "");
  EXPECT_EQ(store.counts().damaged, 0);
  store.write(name('1'), "hello");
  EXPECT_EQ(read(store, '1', 5), "hello");
}

// Jobs side by side write the same rows: here the other one's temporary is in the way, for good.
TEST_F(PrefixStoreTest, AnotherWriterOfTheSameEntryIsNoReasonToStop) {
  fs::create_directories(folder_ / (name('1') + ".tmp"));  // can't be unlinked
  PrefixStore store = this->store();
  store.write(name('1'), "hello");
  EXPECT_EQ(store.full(), "");
  EXPECT_EQ(read(store, '1', 5), "");
  store.write(name('2'), "world");
  EXPECT_EQ(read(store, '2', 5), "world");
}

TEST_F(PrefixStoreTest, AFolderThatCantBeWrittenEndsNothing) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  PrefixStore store = this->store();
  store.write(name('1'), "hello");
  EXPECT_NE(store.full(), "");
  EXPECT_EQ(read(store, '1', 5), "");
  EXPECT_EQ(support::content_of(folder_), "a file");
}

}  // namespace
}  // namespace dex::train::testing
