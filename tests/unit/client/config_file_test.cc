// ~/.config/dex/config.toml: which profile counts, and what is refused.

#include "client/cli/config_file.h"

#include <gmock/gmock.h>

#include <fstream>

#include "client/cli/exit_code.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTwo =
    "# two platforms\n"
    "[profile.default]\n"
    "server = \"127.0.0.1:1\"\n"
    "\n"
    "[profile.work]\n"
    "server = \"dex.example:50051\"  # the team's\n"
    "output = \"json\"\n";

class ConfigFileTest : public testing::Test {
 protected:
  void write(const std::string& text,
             fs::perms mode = fs::perms::owner_read | fs::perms::owner_write) {
    std::ofstream(file()) << text;
    fs::permissions(file(), mode);
  }
  fs::path file() { return directory_ / "config.toml"; }
  std::string refusal(const std::string& name = "") {
    const auto profile = read_profile(file(), name);
    EXPECT_FALSE(profile.ok());
    EXPECT_EQ(exit_code(profile.status()), kUserFault);
    return profile.status().message();
  }

  support::TemporaryDirectory directory_;
};

TEST_F(ConfigFileTest, AProfileIsNamedOrTheDefaultOne) {
  write(kTwo);
  const auto plain = read_profile(file(), "");
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ(plain->name, "default");
  EXPECT_EQ(plain->server, "127.0.0.1:1");
  EXPECT_EQ(plain->output, "");
  const auto work = read_profile(file(), "work");
  ASSERT_TRUE(work.ok()) << work.status().to_string();
  EXPECT_EQ(work->server, "dex.example:50051");
  EXPECT_EQ(work->output, "json");
}

TEST_F(ConfigFileTest, NoFileAndNoDefaultAreNoProfile) {
  EXPECT_EQ(read_profile(file(), "")->name, "");
  EXPECT_EQ(read_profile({}, "")->name, "");
  EXPECT_THAT(refusal("work"), AllOf(HasSubstr("'work'"), HasSubstr(file().string())));
  write("[profile.work]\nserver = \"a:1\"\n");
  EXPECT_EQ(read_profile(file(), "")->name, "");
  EXPECT_THAT(refusal("wrk"),
              AllOf(HasSubstr("no profile 'wrk'"), HasSubstr("did you mean work?")));
}

TEST_F(ConfigFileTest, WhatOthersCanReadIsRefusedWithTheWayOut) {
  for (const auto others :
       {fs::perms::group_read, fs::perms::others_read, fs::perms::group_write}) {
    write(kTwo, fs::perms::owner_read | fs::perms::owner_write | others);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("chmod 600 " + file().string())));
  }
  write(kTwo);
  EXPECT_TRUE(read_profile(file(), "").ok());
}

TEST_F(ConfigFileTest, WhatIsNotUnderstoodIsNamed) {
  write("[profile.work]\nsrever = \"a:1\"\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'srever'"), HasSubstr("did you mean server?")));
  write("[profile.work]\noutput = \"yaml\"\n");
  EXPECT_THAT(refusal(), HasSubstr("output must be table, json, jsonl or id, got 'yaml'"));
  write("[profile.work]\nserver = \"a:1\"\nserver = \"b:1\"\n");
  EXPECT_THAT(refusal(), HasSubstr("server of profile 'work' takes one value"));
  write("server = \"a:1\"\n");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("'server' belongs to no profile"), HasSubstr("[profile.NAME]")));
  write("[work]\nserver = \"a:1\"\n");
  EXPECT_THAT(refusal(), HasSubstr("'work.server' belongs to no profile"));
}

TEST(DefaultConfigFileTest, FollowsTheRulesOfXdg) {
  EXPECT_EQ(default_config_file("", "/home/a"), "/home/a/.config/dex/config.toml");
  EXPECT_EQ(default_config_file("/etc/a", "/home/a"), "/etc/a/dex/config.toml");
  EXPECT_EQ(default_config_file("relative", "/home/a"), "/home/a/.config/dex/config.toml");
  EXPECT_EQ(default_config_file("", ""), "");
}

}  // namespace
}  // namespace dex::cli
