#include "services/base/signals.h"
#include "tests/support/eventually.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>

namespace dex::base {
namespace {

using support::kPatience_ms;

// Restores the mask that StopSignals sets in this thread.
class StopSignalsTest : public testing::Test {
 protected:
  StopSignalsTest() { pthread_sigmask(SIG_SETMASK, nullptr, &mask_); }
  ~StopSignalsTest() override { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }

 private:
  sigset_t mask_{};
};

TEST_F(StopSignalsTest, TheFirstSignalStopsTheSecondIsUrgent) {
  StopSignals signals;
  EXPECT_FALSE(signals.wait(1));
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(signals.wait(kPatience_ms));
  EXPECT_TRUE(signals.token().stop_requested());
  EXPECT_FALSE(signals.urgent().stop_requested());
  kill(getpid(), SIGINT);
  EXPECT_TRUE(wait_for_stop(signals.urgent(), kPatience_ms));
}

TEST_F(StopSignalsTest, ABrokenPipeIsAnErrorNotTheEnd) {
  const StopSignals signals;
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  close(fds[1]);
  EXPECT_EQ(write(fds[0], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(fds[0]);
}

}  // namespace
}  // namespace dex::base
