#include "services/monitor/registry.h"

#include <prometheus/text_serializer.h>

namespace dex::monitor {

Registry::Registry(std::string process, std::string version, std::string commit)
    : registry_(prometheus::Registry::InsertBehavior::Merge) {
  gauges("dex_build_info", "Always 1; its labels say which program this is")
      .Add({{"process", std::move(process)},
            {"version", std::move(version)},
            {"commit", std::move(commit)}})
      .Set(1);
  gauge("dex_process_start_timestamp_seconds", "When this process started, in Unix time")
      .SetToCurrentTime();
}

prometheus::Family<prometheus::Counter>& Registry::counters(std::string_view name,
                                                            std::string_view help) {
  return prometheus::BuildCounter()
      .Name(std::string(name))
      .Help(std::string(help))
      .Register(registry_);
}

prometheus::Family<prometheus::Gauge>& Registry::gauges(std::string_view name,
                                                        std::string_view help) {
  return prometheus::BuildGauge()
      .Name(std::string(name))
      .Help(std::string(help))
      .Register(registry_);
}

prometheus::Family<prometheus::Histogram>& Registry::histograms(std::string_view name,
                                                                std::string_view help) {
  return prometheus::BuildHistogram()
      .Name(std::string(name))
      .Help(std::string(help))
      .Register(registry_);
}

prometheus::Counter& Registry::counter(std::string_view name, std::string_view help) {
  return counters(name, help).Add({});
}

prometheus::Gauge& Registry::gauge(std::string_view name, std::string_view help) {
  return gauges(name, help).Add({});
}

prometheus::Histogram& Registry::histogram(std::string_view name, std::string_view help,
                                           const std::vector<double>& bounds) {
  return histograms(name, help).Add({}, bounds);
}

void Registry::before_scrape(std::function<void()> update) {
  const std::lock_guard lock(mutex_);
  updates_.push_back(std::move(update));
}

std::string Registry::text() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& update : updates_) update();
  }
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

const std::vector<double>& latency_bounds() {
  static const std::vector<double> kBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                              0.25,   0.5,   1,      2.5,   5,    10,    30,   60};
  return kBounds;
}

}  // namespace dex::monitor
