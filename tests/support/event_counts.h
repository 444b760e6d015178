#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/store_snapshot.h"

namespace dex::support {

// One of the schedulers' counters (jobs.md §12) and a label that its series must have, such as
// `end="crash"`; without a label: all its series.
using CounterSeries = std::pair<std::string, std::string>;
using CounterValues = std::map<CounterSeries, double>;

// The sum of a metric over its series with that label on a page of /metrics.
double sum_on_page(const std::string& page, const std::string& metric, const std::string& label);

// All that EventCounts judges, each read by `sum`: over every scheduler.
CounterValues read_counters(
    const std::function<double(const std::string& metric, const std::string& label)>& sum);

// How often the schedulers' counters must have counted, by the event stream (jobs.md §13, P18).
// Written down a second time on purpose, as the oracle of the store is.
class EventCounts {
 public:
  // Events that follow those given before.
  void add(const std::vector<StoreEvent>& events);
  // Counts from nought again; the jobs' lives go on.
  void start_again() {
    counts_.clear();
    events_ = 0;
  }

  // Which of these counters differ, in words. `some_lost`: schedulers were killed with what they
  // had counted, or did not hear what the store had done: then only what counts more is wrong.
  [[nodiscard]] std::vector<std::string> differences(const CounterValues& counted,
                                                     bool some_lost = false) const;

  [[nodiscard]] int events() const { return events_; }  // that were counted
  [[nodiscard]] const std::string& last() const { return last_; }

 private:
  struct Life {
    std::string state, stopped_for;  // the latter: why it is or was CANCELLING
  };
  void count(const Life& life, const StoreEvent& event);

  std::map<std::string, Life> lives_;
  std::map<CounterSeries, int> counts_;
  int events_ = 0;
  std::string last_;
};

}  // namespace dex::support
