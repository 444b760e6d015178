// The official openai package, unmodified, on a running platform with a tiny random model: its own
// script (openai_client.py) says what it does.

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/running_platform.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

TEST(OpenAiClientTest, TheOfficialPackageFindsAllThatItNeeds) {
  const auto python = support::deps_dir() / "clients-venv/bin/python";
  if (!std::filesystem::exists(python)) {
    GTEST_SKIP() << python << " is not there; it comes with: deploy/setup/all --only clients";
  }
  const support::TemporaryDirectory directory;
  support::RunningPlatform platform(directory / "data",
                                    support::write_tiny_model(directory.path()));
  platform.start();
  const auto outcome =
      support::run_program(python,
                           {support::source_dir() / "tests/e2e/openai_client.py",
                            "http://" + platform.endpoints().at("http").get<std::string>(),
                            support::kTinyModel, support::deps_dir() / "data"},
                           600'000);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err << platform.log();
}

}  // namespace
}  // namespace dex
