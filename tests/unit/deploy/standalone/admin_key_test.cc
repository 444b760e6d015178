// dexd --auth on: who is asked for a key, and the operator's first one.
#include "deploy/standalone/admin_key.h"

#include <sys/stat.h>

#include "services/auth/api_key.h"
#include "tests/unit/deploy/standalone/dexd_fixture.h"

namespace dex::standalone {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string key_in(const fs::path& file) {
  std::string text = content_of(file);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

TEST(AdminKeyTest, IsMadeOnceForItsOwnerAlone) {
  const support::TemporaryDirectory directory;
  base::SystemRandom random;
  const auto file = prepare_admin_key(directory.path(), random);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(*file, directory / "admin.key");
  struct stat info {};
  ASSERT_EQ(stat(file->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const std::string key = key_in(*file);
  EXPECT_TRUE(auth::is_api_key(key));
  ASSERT_TRUE(prepare_admin_key(directory.path(), random).ok());
  EXPECT_EQ(key_in(*file), key) << "the next start keeps it";
}

TEST(AdminKeyTest, AFileThatIsOfNoUseIsRefusedWithAWayOut) {
  const support::TemporaryDirectory directory;
  base::SystemRandom random;
  ASSERT_TRUE(prepare_admin_key(directory.path(), random).ok());
  const fs::path file = directory / "admin.key";
  const std::string key = key_in(file);
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  const auto open = prepare_admin_key(directory.path(), random).status();
  EXPECT_EQ(open.reason(), "ADMIN_KEY_UNUSABLE");
  EXPECT_THAT(open.message(), HasSubstr("chmod 600"));
  EXPECT_THAT(open.message(), Not(HasSubstr(key)));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  std::ofstream(file) << "secret";
  const auto wrong = prepare_admin_key(directory.path(), random).status();
  EXPECT_EQ(wrong.reason(), "ADMIN_KEY_UNUSABLE");
  EXPECT_THAT(wrong.message(), HasSubstr("remove it"));
  EXPECT_THAT(wrong.message(), Not(HasSubstr("secret")));
}

TEST_F(DexdTest, WithAuthOnTheKeyIsInItsFileAndOnNoCommandLine) {
  auto dexd = start(command({"--auth", "on"}));
  const std::string key = key_in(data_ / "admin.key");
  EXPECT_TRUE(auth::is_api_key(key)) << output();
  for (const pid_t pid : processes("")) {
    EXPECT_THAT(content_of(fs::path("/proc") / std::to_string(pid) / "cmdline"),
                Not(HasSubstr(key)));
  }
  EXPECT_THAT(output(), Not(HasSubstr(key)));
  const auto line = [this](const char* name) {
    return content_of(fs::path("/proc") / std::to_string(only(name)) / "cmdline");
  };
  EXPECT_THAT(line("dex-gateway"), HasSubstr(std::string("--auth\0on", 9)));
  EXPECT_THAT(line("dex-scheduler"), HasSubstr((data_ / "admin.key").string()));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

TEST_F(DexdTest, OffIsForLoopbackAloneWhereItIsTheDefault) {
  EXPECT_EQ(run(command({"--host", "0.0.0.0", "--auth", "off"})), 1);
  EXPECT_THAT(output(), HasSubstr("--host"));
  EXPECT_THAT(output(), HasSubstr("loopback"));
  EXPECT_EQ(run(command({"--auth", "maybe"})), 2);
  auto dexd = start();
  EXPECT_FALSE(fs::exists(data_ / "admin.key"));
  EXPECT_THAT(content_of(fs::path("/proc") / std::to_string(only("dex-gateway")) / "cmdline"),
              HasSubstr(std::string("--auth\0off", 10)));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

}  // namespace
}  // namespace dex::standalone
