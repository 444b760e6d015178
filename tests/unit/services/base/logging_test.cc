#include "services/base/logging.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "services/base/version.h"
#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

const std::string kKey = "dex_" + std::string(49, 'A');

TEST(LoggingTest, OneLineARecordWithSecretsBlottedOut) {
  const support::TemporaryDirectory directory;
  const auto before = spdlog::default_logger();
  ASSERT_TRUE(
      init_logging({.component = "scheduler", .level = "info", .file = directory / "log"}).ok());
  spdlog::info("key {} was\nrefused", kKey);
  spdlog::debug("not this one");
  spdlog::default_logger()->flush();
  spdlog::set_default_logger(before);

  std::ostringstream text;
  text << std::ifstream(directory / "log").rdbuf();
  EXPECT_TRUE(std::regex_match(
      text.str(), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z info scheduler: "
                             "key dex_… was\\\\nrefused\n")))
      << text.str();
}

TEST(LoggingTest, AnUnknownLevelOrAnUnwritableFileIsAnError) {
  const auto status = init_logging({.component = "x", .level = "loud", .file = {}});
  EXPECT_EQ(status.reason(), "INVALID_FIELD");
  EXPECT_NE(status.message().find("loud"), std::string::npos);
  EXPECT_FALSE(init_logging({.component = "x", .level = "info", .file = "/proc/x/y"}).ok());
}

TEST(SanitizeLogTextTest, TouchesOnlyKeysAndControlCharacters) {
  EXPECT_EQ(sanitize_log_text("Bearer " + kKey + "."), "Bearer dex_….");
  EXPECT_EQ(sanitize_log_text("dexw_" + std::string(49, 'b')), "dexw_…");
  EXPECT_EQ(sanitize_log_text("dex_jobs_total dex_format_version"),
            "dex_jobs_total dex_format_version");
  EXPECT_EQ(sanitize_log_text(std::string_view("a\x01\0b", 4)), "a\\x01\\x00b");
  EXPECT_EQ(sanitize_log_text("Überblick λ"), "Überblick λ");
}

TEST(VersionTest, IsThatOfTheProject) {
  EXPECT_EQ(version(), "0.1.0");
  EXPECT_FALSE(commit().empty());
}

}  // namespace
}  // namespace dex::base
