#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace dex::monitor {

using Labels = std::map<std::string, std::string>;

// The metrics of one process, in Prometheus' text format. One object a process, made in main and
// passed to the rooms that count. Names: jobs.md §12 (`dex_`, base units, counters end in
// `_total`). Labels must be bounded: never an id, a file or a user. Thread-safe; the returned
// references live as long as this object.
class Registry {
 public:
  // Exports dex_build_info{process,version,commit} = 1 and the process's start time.
  Registry(std::string process, std::string version, std::string commit);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // A family by name; asked for twice, it is the same one. Get a series by .Add(labels), once, and
  // keep the reference: looking it up costs a hash and a lock.
  prometheus::Family<prometheus::Counter>& counters(std::string_view name, std::string_view help);
  prometheus::Family<prometheus::Gauge>& gauges(std::string_view name, std::string_view help);
  prometheus::Family<prometheus::Histogram>& histograms(std::string_view name,
                                                        std::string_view help);

  // Families with a single series, without labels.
  prometheus::Counter& counter(std::string_view name, std::string_view help);
  prometheus::Gauge& gauge(std::string_view name, std::string_view help);
  prometheus::Histogram& histogram(std::string_view name, std::string_view help,
                                   const std::vector<double>& bounds);

  // Runs before each scrape, for gauges that are read rather than kept (sizes, ages). Must not
  // block for long and must outlive this object's last scrape.
  void before_scrape(std::function<void()> update);

  // The exposition, `text/plain; version=0.0.4`.
  [[nodiscard]] std::string text();

 private:
  prometheus::Registry registry_;
  std::mutex mutex_;  // guards updates_
  std::vector<std::function<void()>> updates_;
};

// Bounds in seconds for waits and calls: 0.5 ms to 60 s.
const std::vector<double>& latency_bounds();

}  // namespace dex::monitor
