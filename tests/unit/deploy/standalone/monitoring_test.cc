// dexd's Prometheus: a real one, before stand-ins for the processes that it scrapes.

#include "deploy/standalone/monitoring.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "deploy/standalone/http_probe.h"
#include "deploy/standalone/listening_port.h"
#include "services/base/fd.h"
#include "tests/support/prometheus_api.h"
#include "tests/unit/deploy/standalone/dexd_fixture.h"

namespace dex::standalone {
namespace {

using support::prometheus_data;
using testing::HasSubstr;

struct Listener {
  base::Fd fd;
  uint16_t port = 0;
};

Listener listen_somewhere() {
  Listener listener{base::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  EXPECT_EQ(bind(listener.fd.get(), reinterpret_cast<sockaddr*>(&where), size), 0);
  EXPECT_EQ(listening_port(getpid()).status().reason(), "NOT_READY") << "bound is not listening";
  EXPECT_EQ(listen(listener.fd.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&where), &size), 0);
  listener.port = ntohs(where.sin_port);
  return listener;
}

class PrometheusTest : public DexdTest {
 protected:
  // dexd itself has "--with-prometheus" in its command line.
  pid_t prometheus() { return only("--storage.tsdb.path"); }
};

TEST_F(PrometheusTest, ScrapesEveryProcessKnowsTheRulesAndStopsCleanly) {
  auto dexd = start(command({"--with-prometheus"}));
  const std::string address = endpoints().at("prometheus");
  EXPECT_THAT(address, HasSubstr("127.0.0.1:"));
  const std::map<std::string, std::string> all_up = {
      {"dex-gateway", "up"}, {"dex-scheduler", "up"}, {"dex-worker", "up"}};
  std::map<std::string, std::string> health;
  EXPECT_TRUE(eventually([&] { return (health = support::target_health(address)) == all_up; }))
      << testing::PrintToString(health);
  EXPECT_GT(prometheus_data(address, "rules?type=alert").at("groups").size(), 4u);
  const auto flags = prometheus_data(address, "status/flags");
  EXPECT_EQ(flags.at("storage.tsdb.retention.size"), "512MiB");
  EXPECT_EQ(flags.at("storage.tsdb.retention.time"), "15d");
  EXPECT_EQ(flags.at("storage.tsdb.path"), (data_ / "prometheus").string());
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  EXPECT_TRUE(processes("").empty());
  EXPECT_THAT(content_of(data_ / "logs/prometheus.log"), HasSubstr("See you next time!"));
}

TEST_F(PrometheusTest, ADeadOneIsStartedAgainAtItsAddress) {
  auto dexd = start(command({"--with-prometheus"}));
  const std::string address = endpoints().at("prometheus");
  const pid_t first = prometheus();
  kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const auto now = processes("--storage.tsdb.path");
    return now.size() == 1 && now[0] != first && http_ok(address, "/-/ready", 1'000).ok();
  }));
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
  EXPECT_THAT(output(), HasSubstr("prometheus ended with signal 9"));
}

TEST_F(PrometheusTest, DiesWithAKilledDexd) {
  auto dexd = start(command({"--with-prometheus"}));
  kill(dexd->pid(), SIGKILL);
  EXPECT_TRUE(eventually([this] { return processes("").empty(); }));
  dexd.reset();
  auto again = start(command({"--with-prometheus"}));
  EXPECT_EQ(again->terminate(kPatience_ms).code, 0);
}

TEST_F(PrometheusTest, WithoutTheProgramNothingStartsAndTheRemedyIsNamed) {
  fs::create_directory(directory_ / "path");
  fs::create_symlink("/usr/bin/redis-server", directory_ / "path/redis-server");
  auto options = command({"--with-prometheus"});
  options.environment = {{"PATH", (directory_ / "path").string()}};
  EXPECT_EQ(run(options), 1);
  EXPECT_THAT(output(), HasSubstr("apt-get install prometheus"));
  EXPECT_THAT(output(), HasSubstr("without --with-prometheus"));
  EXPECT_EQ(journal(), "") << "not even a scheduler";
}

TEST_F(PrometheusTest, APortThatIsTakenIsNamedAndNothingIsLeft) {
  const auto taken = listen_somewhere();
  EXPECT_EQ(run(command({"--with-prometheus", "--prometheus-port", std::to_string(taken.port)})),
            1);
  EXPECT_THAT(output(), HasSubstr("prometheus did not start"));
  EXPECT_THAT(output(), HasSubstr(std::to_string(taken.port)));
  EXPECT_TRUE(processes("").empty());
  EXPECT_EQ(run(command({"--prometheus-port", "70000"})), 2);
}

TEST_F(PrometheusTest, WhoHasNoneFindsFilesForAnother) {
  auto dexd = start();
  EXPECT_FALSE(endpoints().contains("prometheus"));
  const auto targets = nlohmann::json::parse(content_of(data_ / "monitoring/targets/dexd.json"));
  ASSERT_EQ(targets.size(), 3u);
  for (const auto& target : targets) {
    const std::string job = target.at("labels").at("job");
    EXPECT_EQ(target.at("targets").at(0), endpoints().at("metrics").at(job.substr(4))) << job;
  }
  const std::string command = "promtool check config '" +
                              (data_ / "monitoring/prometheus.yml").string() + "' >/dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(dexd->terminate(kPatience_ms).code, 0);
}

TEST(ListeningPortTest, IsReadFromTheKernelsTable) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "111 1 0 100 0 0 10 0\n"
      "   1: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "222 1 0 100 0 0 10 0\n"
      "   2: 0100007F:0051 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 "
      "333 1 0 100 0 0 10 0\n"
      "   3: rubbish\n";
  EXPECT_EQ(listening_port_in(table, {111}), 8080);
  EXPECT_EQ(listening_port_in(table, {111, 222}), 80);
  EXPECT_EQ(listening_port_in(table, {333}), 0) << "a connection";
  EXPECT_EQ(listening_port_in(table, {444}), 0) << "another process's";
  EXPECT_EQ(listening_port_in("", {111}), 0);
}

TEST(ListeningPortTest, FindsTheOneOfAProcess) {
  const auto listener = listen_somewhere();
  const auto port = listening_port(getpid());
  ASSERT_TRUE(port.ok()) << port.status().to_string();
  EXPECT_EQ(*port, listener.port);
}

}  // namespace
}  // namespace dex::standalone
