// The documentation as its readers meet it: every block of docs/*.md that is marked as run is typed
// on a running platform with the real model, and what the page says comes out. run.py says how.

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/running_platform.h"

namespace dex {
namespace {

TEST(DocsTest, WhatThePagesTellPeopleToTypeDoesWhatTheySay) {
  const support::TemporaryDirectory directory;
  support::RunningPlatform platform(directory / "data");
  platform.start();
  std::filesystem::create_directory(directory / "pages");
  const auto outcome = support::run_program(
      support::deps_dir() / "setup-venv/bin/python",
      {support::source_dir() / "tests/e2e/docs/run.py", support::source_dir(),
       support::build_dir() / "bin", support::deps_dir(), platform.endpoints().at("grpc"),
       platform.endpoints().at("http"), directory / "pages"},
      1'700'000, {{"PYTHONDONTWRITEBYTECODE", "1"}});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err << platform.log();
}

}  // namespace
}  // namespace dex
