#include "services/monitor/registry.h"

#include <gmock/gmock.h>

#include "tests/support/promtool.h"

namespace dex::monitor {
namespace {

using ::testing::HasSubstr;

TEST(RegistryTest, ExportsWhatTheProcessIs) {
  Registry registry("gateway", "0.1.0", "abc");
  EXPECT_THAT(registry.text(),
              HasSubstr("dex_build_info{commit=\"abc\",process=\"gateway\",version=\"0.1.0\"} 1"));
}

TEST(RegistryTest, TheSameNameIsTheSameFamily) {
  Registry registry("test", "0", "0");
  registry.counter("dex_things_total", "Things").Increment();
  registry.counter("dex_things_total", "Things").Increment();
  EXPECT_THAT(registry.text(), HasSubstr("dex_things_total 2"));
}

TEST(RegistryTest, UpdatesRunBeforeEachScrape) {
  Registry registry("test", "0", "0");
  auto& gauge = registry.gauge("dex_queue_size", "Waiting");
  int size = 0;
  registry.before_scrape([&] { gauge.Set(++size); });
  EXPECT_FALSE(registry.text().empty());
  EXPECT_THAT(registry.text(), HasSubstr("dex_queue_size 2"));
}

TEST(RegistryTest, PromtoolFindsNoFault) {
  Registry registry("test", "0.1.0", "abc");
  registry.counters("dex_things_total", "Things")
      .Add({{"kind", "a \"quoted\"\nlabel"}})
      .Increment();
  registry.histogram("dex_wait_seconds", "Waits", latency_bounds()).Observe(0.3);
  EXPECT_EQ(support::promtool_complaints(registry.text()), "");
  // And it would find one.
  registry.counter("dex_bad_counter", "Its name lacks _total");
  EXPECT_THAT(support::promtool_complaints(registry.text()), HasSubstr("dex_bad_counter"));
}

}  // namespace
}  // namespace dex::monitor
