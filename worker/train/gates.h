#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/evaluate/statistics.h"

namespace dex::train {

// A condition on one figure that the trainer measures of the finished job (api.md §3 gates[];
// finetuning.proto, Gate), with every default filled in. Gates on tasks of EvaluationService are
// the agent's to judge.
struct Gate {
  enum class Figure { kHeldOutLoss, kBaseKl, kBranchValue, kBranchCeDelta };
  enum class OnFail { kBlockAlias, kFailJob, kWarn };
  std::string name;
  Figure figure = Figure::kHeldOutLoss;
  bool against_base = true;  // the figure minus the base's; only of kHeldOutLoss
  bool at_least = false;     // GE; else LE
  bool bound = true;         // the interval's pessimistic end decides; else the value
  double threshold = 0;
  OnFail on_fail = OnFail::kBlockAlias;
  std::string condition;  // for people: "held_out.loss - base <= 0, high end"
};
const char* name(Gate::OnFail on_fail);  // "BLOCK_ALIAS"

// A measured figure.
struct GateFigure {
  double value = 0;
  std::optional<evaluate::Interval> interval;  // nothing: it has none, or there were too few rows
  int64_t n = 0;                               // rows, or tokens where there is no interval
};

struct GateResult {
  std::string gate;  // its name
  GateFigure figure;
  bool passed = false;
  Gate::OnFail on_fail = Gate::OnFail::kBlockAlias;
  std::string condition;
  std::string not_measured;  // why the bound that it asks for can't decide; empty: it can
};

// By the rules that gates on tasks have too (proto/gates.h, passes and undecided_bound): a gate on
// a bound that isn't there or is over a handful of rows, and any gate on a figure that is not a
// number, has not passed. Pure.
GateResult judge_gate(const Gate& gate, const GateFigure& figure);

// "gate quality passed: held_out.loss - base <= 0, high end; -0.12 (-0.2 to -0.05) over 40"
std::string sentence(const GateResult& result);

}  // namespace dex::train
