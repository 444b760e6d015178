// dexctl doctor: the page, what the client adds to it, and the exit code.
#include "client/cli/doctor.h"

#include <gmock/gmock.h>

#include "client/cli/exit_code.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

v1::Health health_of(v1::Health::Severity memory) {
  v1::Health health;
  health.set_version("1.2.3");
  health.mutable_server_time()->set_seconds(1'764'000'000);
  auto& file = *health.add_checks();
  file.set_topic("store");
  file.set_name("append-only file");
  file.set_severity(v1::Health::SEVERITY_OK);
  file.set_finding("on");
  auto& check = *health.add_checks();
  check.set_topic("store");
  check.set_name("memory");
  check.set_severity(memory);
  check.set_finding("80 % of 0.5 GiB used");
  if (memory != v1::Health::SEVERITY_OK) check.set_remedy("raise maxmemory");
  auto& promise = *health.add_promises();
  promise.set_text("A job survives");
  promise.set_kept(true);
  promise.set_reason("it is on the disk");
  return health;
}

TEST(DoctorTest, ThePage) {
  EXPECT_EQ(health_text(health_of(v1::Health::SEVERITY_WARN), Terminal{}),
            "store\n"
            "  ok    append-only file  on\n"
            "  warn  memory            80 % of 0.5 GiB used\n"
            "                        → raise maxmemory\n"
            "\n"
            "What this setting promises\n"
            "  yes  A job survives\n"
            "       it is on the disk\n"
            "\n"
            "1 warning: the lines with an arrow say what to do.\n");
  const std::string well = health_text(health_of(v1::Health::SEVERITY_OK), Terminal{});
  EXPECT_THAT(well, HasSubstr("All is well."));
  EXPECT_THAT(well, Not(HasSubstr("→")));
}

TEST(DoctorTest, TheExitCodeIsTheGravestSeverity) {
  EXPECT_EQ(exit_code(health_of(v1::Health::SEVERITY_OK)), kDone);
  EXPECT_EQ(exit_code(health_of(v1::Health::SEVERITY_WARN)), kNotPassed);
  auto health = health_of(v1::Health::SEVERITY_WARN);
  health.mutable_checks(0)->set_severity(v1::Health::SEVERITY_FAIL);
  EXPECT_EQ(exit_code(health), kSystemFault);
  EXPECT_THAT(health_text(health, Terminal{}), HasSubstr("1 failure, 1 warning"));
}

TEST(DoctorTest, WhatTheClientSees) {
  constexpr int64_t kServer_ms = 1'764'000'000'000;
  auto health = health_of(v1::Health::SEVERITY_OK);
  add_client_checks({"1.2.3", kServer_ms - 20, kServer_ms + 20}, health);
  ASSERT_EQ(health.checks_size(), 4);
  EXPECT_EQ(health.checks(0).topic(), "server") << "first what is nearest";
  EXPECT_EQ(health.checks(0).name(), "version");
  EXPECT_EQ(health.checks(1).name(), "clock");
  EXPECT_EQ(health.checks(2).name(), "append-only file");
  EXPECT_EQ(exit_code(health), kDone);

  // Slow is not wrong: within the time that the answer took anything may be true.
  health = health_of(v1::Health::SEVERITY_OK);
  add_client_checks({"1.2.3", kServer_ms - 50'000, kServer_ms + 100}, health);
  EXPECT_EQ(health.checks(1).severity(), v1::Health::SEVERITY_OK) << health.checks(1).finding();

  health = health_of(v1::Health::SEVERITY_OK);
  add_client_checks({"1.2.4", kServer_ms + 600'000, kServer_ms + 600'010}, health);
  EXPECT_EQ(health.checks(0).severity(), v1::Health::SEVERITY_WARN);
  EXPECT_THAT(health.checks(0).finding(), HasSubstr("dexctl is 1.2.4"));
  EXPECT_EQ(health.checks(1).severity(), v1::Health::SEVERITY_WARN);
  EXPECT_THAT(health.checks(1).finding(), StartsWith("600000 ms"));
}

}  // namespace
}  // namespace dex::cli
