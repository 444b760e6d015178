// One node in cluster mode: there a script that touches a key of another slot is refused, which a
// Redis by itself does not notice (jobs.md §3, trap 1).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "services/base/fd.h"
#include "tests/integration/scheduler_model/falsify.h"
#include "tests/integration/scheduler_model/model_run.h"
#include "tests/support/eventually.h"

namespace dex::model {
namespace {

// Two ports that are free now.
std::pair<int, int> free_ports() {
  const auto listen_somewhere = [](base::Fd& fd) {
    fd = base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size), 0);
    return static_cast<int>(ntohs(where.sin_port));
  };
  base::Fd first, second;
  const int one = listen_somewhere(first);
  return {one, listen_somewhere(second)};
}

std::string cluster_config() {
  const auto [port, bus] = free_ports();
  return "bind 127.0.0.1\nport " + std::to_string(port) +
         "\ncluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port " +
         std::to_string(bus) + "\n";
}

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() : server_(cluster_config()) {
    server_.call({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
    EXPECT_TRUE(support::eventually([&] {
      return server_.call({"CLUSTER", "INFO"}).text.find("cluster_state:ok") != std::string::npos;
    }));
  }
  support::RedisServer server_;
};

TEST_F(ClusterTest, EveryScriptKeepsToItsSlot) {
  model::Run run;
  for (uint64_t seed = 1; run.steps < 500; ++seed) {
    ASSERT_EQ(falsify(seed, 400, false,
                      [&](std::vector<Command> commands) {
                        // A node that starts again is down for two seconds.
                        std::erase_if(commands, [](const Command& command) {
                          return command.kind == Kind::kRestart;
                        });
                        return run_commands_on(server_, commands, {}, run);
                      }),
              "");
  }
}

TEST_F(ClusterTest, AScriptThatDoesNotIsRefused) {
  EXPECT_NO_THROW(server_.call(
      {"EVAL", "#!lua\nreturn redis.call('GET', KEYS[1] .. 'here')", "1", "dex:{s0}:"}));
  EXPECT_THROW(
      server_.call({"EVAL", "#!lua\nreturn redis.call('GET', 'elsewhere')", "1", "dex:{s0}:"}),
      std::runtime_error);
}

}  // namespace
}  // namespace dex::model
