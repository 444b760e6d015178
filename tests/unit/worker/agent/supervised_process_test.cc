// What is said of a process that was given up.

#include "worker/agent/supervised_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "services/base/subprocess.h"
#include "tests/support/eventually.h"

namespace dex::agent {
namespace {

TEST(SupervisedProcessTest, IsNamedByProgramProcessAndWorker) {
  EXPECT_EQ(name_of({}), "");
  EXPECT_EQ(name_of({"dex-trainer", 4711, "gpu-3"}), "dex-trainer (process 4711 on worker gpu-3)");
  EXPECT_EQ(name_of({"dex-engine", 1, ""}), "dex-engine (process 1)");
}

TEST(SupervisedProcessTest, ItsActivityIsTheKernels) {
  EXPECT_EQ(activity_of(getpid()), "running");
  auto child = base::Subprocess::start({.program = "sleep", .args = {"600"}});
  ASSERT_TRUE(child.ok()) << child.status().to_string();
  const pid_t pid = (*child)->pid();
  EXPECT_TRUE(support::eventually([&] { return activity_of(pid) == "sleeping"; }));
  (*child)->signal(SIGSTOP);
  EXPECT_TRUE(support::eventually([&] { return activity_of(pid) == "stopped"; }));
  (*child)->terminate(0);
  EXPECT_EQ(activity_of(pid), "");
}

}  // namespace
}  // namespace dex::agent
