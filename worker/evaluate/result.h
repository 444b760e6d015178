#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/statistics/paired.h"
#include "worker/evaluate/statistics.h"

// What an evaluation yields: samples while it runs, rows at the end (api.md §2, result row).
namespace dex::evaluate {

// Named places of a number, e.g. {{"length", "2048"}, {"depth", "50"}}, in the order of the table.
using Dims = std::vector<std::pair<std::string, std::string>>;
// The value of `name`; nullptr: it has none.
const std::string* find(const Dims& dims, const std::string& name);

enum class IntervalKind { kWilson, kBootstrap, kNone };
const char* name(IntervalKind kind);  // "WILSON" …

// A subject against the baseline on the samples that both have.
using statistics::Comparison;
using statistics::name;
using statistics::Verdict;

struct ResultRow {
  std::string task;
  std::string subject;
  std::string metric;
  Dims dims;
  double value = 0;
  std::optional<Interval> interval;  // absent: kind is kNone
  double confidence = 0.95;
  IntervalKind kind = IntervalKind::kNone;
  int64_t n = 0;                         // what the interval is over: samples, documents …
  std::optional<Comparison> comparison;  // absent: the baseline itself
};

// One sample as people read it (api.md ListEvaluationSamples).
struct Sample {
  std::string task;
  std::string subject;
  int64_t item = 0;  // equal for the same sample of every subject
  int64_t line = 0;  // of the task's file, from 1; 0: it has none
  Dims dims;
  std::string prompt;
  std::string expected;
  std::string output;
  double score = 0;                      // 0–1, higher is better
  std::optional<double> baseline_score;  // the first subject's on the same sample
  std::vector<double> logprobs;          // of the choices, where there are any
  // Shares by name, where attention was measured.
  std::vector<std::pair<std::string, double>> attention;
};

// One number that a metric adds up: the metric is Σ value / Σ weight over its observations.
struct Observation {
  int32_t metric = 0;  // index into Task::metrics()
  int64_t item = 0;    // pairs the subjects, and names the unit that a bootstrap draws
  Dims dims;
  double value = 0;
  double weight = 1;
};

}  // namespace dex::evaluate
