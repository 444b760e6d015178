// Rules of jobs.md §3 that a text search can check.
#include <gtest/gtest.h>

#include "scheduler/store/script.h"

namespace dex::store {
namespace {

TEST(ScriptRulesTest, FlagsAreThoseOfTheDesign) {
  ASSERT_GE(all_scripts().size(), 15U);
  for (const Script& script : all_scripts()) {
    const bool takes_new_work = script.name == "submit" || script.name == "claim";
    const std::string first = script.text.substr(0, script.text.find('\n'));
    EXPECT_EQ(first, takes_new_work ? "#!lua" : "#!lua flags=allow-oom") << script.name;
  }
}

TEST(ScriptRulesTest, NumbersLeaveLuaThroughFmtOnly) {
  for (const Script& script : all_scripts()) {
    EXPECT_EQ(script.text.find("tostring"), std::string::npos) << script.name;
    EXPECT_EQ(script.text.find("%d"), std::string::npos) << script.name;
    // ZADD or HSET of a bare arithmetic expression would use Lua's own conversion.
    EXPECT_EQ(script.text.find("', now"), std::string::npos) << script.name;
  }
}

TEST(ScriptRulesTest, OneKeyAndNoBlockingCommands) {
  for (const Script& script : all_scripts()) {
    for (const char* word : {"KEYS[2]", "'KEYS'", "BLPOP", "SUBSCRIBE", "PUBLISH"}) {
      EXPECT_EQ(script.text.find(word), std::string::npos) << script.name << " " << word;
    }
  }
}

}  // namespace
}  // namespace dex::store
