#include "services/auth/listen_address.h"

#include <gmock/gmock.h>

namespace dex::auth {
namespace {

TEST(ListenAddressTest, LoopbackAndUnixSocketsAreTheMachinesOwn) {
  for (const char* address : {"127.0.0.1:50051", "127.9.8.7:0", "localhost:80", "[::1]:50051",
                              "unix:/run/dex.sock", "unix-abstract:dex"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
    EXPECT_TRUE(check_listen_address("--listen", address).ok()) << address;
  }
}

TEST(ListenAddressTest, EverythingElseIsRefusedByName) {
  for (const char* address : {"0.0.0.0:50051", "[::]:50051", "192.168.1.4:80", "10.0.0.1:1",
                              "example.org:80", "localhost.example.org:80", "", ":50051",
                              "[::ffff:10.0.0.1]:80", "127.0.0.1.example.org:80"}) {
    const auto status = check_listen_address("--listen", address);
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << address;
    EXPECT_THAT(status.message(), ::testing::StartsWith("--listen: "));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("loopback"));
  }
}

}  // namespace
}  // namespace dex::auth
