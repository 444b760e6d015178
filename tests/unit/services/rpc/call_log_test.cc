// Which traceparents are taken; that calls are logged with them: ForwardTest and HttpBridgeTest.

#include "services/rpc/call_log.h"

#include <gtest/gtest.h>

namespace dex::rpc {
namespace {

// W3C Trace Context, §3.2.2.
TEST(TraceParentTest, OnlyWhatTheStandardHasIsTaken) {
  const std::string good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_EQ(trace_parent_of(good), good);
  EXPECT_EQ(trace_parent_of("cc" + good.substr(2) + "-what-will-be"), "cc" + good.substr(2));
  for (const std::string& bad :
       {std::string(), std::string("00-ab-cd-01"), "ff" + good.substr(2), good + "0", good + "-x",
        good.substr(0, 54),
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01" + std::string(),
        "00-" + std::string(32, '0') + good.substr(35),
        good.substr(0, 36) + std::string(16, '0') + "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7\n01" + std::string()}) {
    EXPECT_EQ(trace_parent_of(bad), "") << bad;
  }
}

}  // namespace
}  // namespace dex::rpc
