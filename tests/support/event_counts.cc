#include "tests/support/event_counts.h"

#include <sstream>

namespace dex::support {

namespace {

CounterSeries attempts_that_ended(const std::string& end) {
  return {"dex_job_attempts_total", "end=\"" + end + "\""};
}
CounterSeries jobs_that_ended(const std::string& outcome) {
  return {"dex_job_finishes_total", "outcome=\"" + outcome + "\""};
}

const CounterSeries kSubmits = {"dex_job_submits_total", "outcome=\"created\""};
const CounterSeries kClaims = {"dex_job_claims_total", ""};
const CounterSeries kLeasesLost = {"dex_lease_lost_total", ""};
const CounterSeries kAttempts = {"dex_job_attempts_total", ""};
const CounterSeries kFinishes = {"dex_job_finishes_total", ""};

std::vector<CounterSeries> all_series() {
  std::vector<CounterSeries> all = {kSubmits, kClaims, kLeasesLost, kAttempts, kFinishes};
  for (const char* end : {"success", "fail_retry", "fail_final", "crash", "oom", "disk_full",
                          "release", "paused", "cancelled", "worker_lost"}) {
    all.push_back(attempts_that_ended(end));
  }
  // Those that failed are told by their codes, which no event has: they are the rest of all.
  for (const char* outcome : {"succeeded", "cancelled", "expired"})
    all.push_back(jobs_that_ended(outcome));
  return all;
}

bool is_held(const std::string& state) {
  return state == "RUNNING" || state == "CANCELLING";
}

}  // namespace

double sum_on_page(const std::string& page, const std::string& metric, const std::string& label) {
  std::istringstream lines(page);
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool named = line.starts_with(metric + " ") || line.starts_with(metric + "{");
    if (named && line.find(label) != std::string::npos)
      sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

CounterValues read_counters(
    const std::function<double(const std::string& metric, const std::string& label)>& sum) {
  CounterValues values;
  for (const auto& [metric, label] : all_series()) values[{metric, label}] = sum(metric, label);
  return values;
}

void EventCounts::add(const std::vector<StoreEvent>& events) {
  for (const StoreEvent& event : events) {
    Life& life = lives_[event.job];
    count(life, event);
    if (event.state == "CANCELLING") life.stopped_for = event.why;
    life.state = event.state;
    last_ = event.id;
  }
}

void EventCounts::count(const Life& life, const StoreEvent& event) {
  ++events_;
  if (event.why == "submit") ++counts_[kSubmits];
  if (event.why == "claim") ++counts_[kClaims];
  if (is_held(life.state) && !is_held(event.state)) {  // an attempt has ended
    const bool lost = event.why == "lease_expired";
    ++counts_[kAttempts];
    ++counts_[attempts_that_ended(lost ? "worker_lost" : event.why)];
    if (lost) ++counts_[kLeasesLost];
  }
  if (!is_terminal(event.state)) return;
  ++counts_[kFinishes];
  if (event.state == "SUCCEEDED") ++counts_[jobs_that_ended("succeeded")];
  if (event.state != "CANCELLED") return;
  const std::string& why = life.state == "CANCELLING" ? life.stopped_for : event.why;
  ++counts_[jobs_that_ended(why == "deadline_exceeded" ? "expired" : "cancelled")];
}

std::vector<std::string> EventCounts::differences(const CounterValues& counted,
                                                  bool some_lost) const {
  std::vector<std::string> wrong;
  for (const auto& [series, value] : counted) {
    const auto found = counts_.find(series);
    const int happened = found == counts_.end() ? 0 : found->second;
    if (value == happened || (some_lost && value < happened)) continue;
    std::ostringstream text;
    text << series.first << "{" << series.second << "} is " << value << ", by the events "
         << happened;
    wrong.push_back(text.str());
  }
  return wrong;
}

}  // namespace dex::support
