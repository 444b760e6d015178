#include "proto/gates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>

namespace dex::proto {

namespace {

using dex::v1::FineTuningJobSpec;
using dex::v1::Gate;

constexpr int kMostGates = 16;

struct GateFigure {
  std::string_view task, metric;
  bool of_base = false;   // the base has one that is not known beforehand
  bool interval = false;  // it is a mean over rows
};
constexpr std::array kFigures = {
    GateFigure{"held_out", "loss", true, true},
    GateFigure{"base_guard", "kl", false, true},
    GateFigure{"branch_effect", "value", false, false},
    GateFigure{"branch_effect", "ce_delta", false, false},
};

const GateFigure* figure_of(const Gate& gate) {
  const auto* found = std::find_if(kFigures.begin(), kFigures.end(), [&gate](const auto& figure) {
    return figure.task == gate.task() && figure.metric == gate.metric();
  });
  return found == kFigures.end() ? nullptr : found;
}

std::string figure_names() {
  std::string names;
  for (const GateFigure& figure : kFigures) {
    if (!names.empty()) names += ", ";
    names.append(figure.task).append(" ").append(figure.metric);
  }
  return names;
}

std::string gate_path(int index, const std::string& field) {
  return "gates[" + std::to_string(index) + "]." + field;
}

bool is_gate_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

// An enum of a gate: where it is set, one of its own numbers and not 0.
template <typename IsValid>
void check_choice(bool set, int value, IsValid is_valid, const std::string& path,
                  const std::string& names, std::vector<BadValue>& bad) {
  if (set && (value == 0 || !is_valid(value)))
    bad.push_back({path, "must be one of " + names + ", got " + std::to_string(value), false});
}

void check_gate(const Gate& gate, int index, std::vector<BadValue>& bad) {
  const auto at = [index](const std::string& field) { return gate_path(index, field); };
  if (gate.has_name() && !is_gate_name(gate.name())) {
    bad.push_back({at("name"), "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', got \"" +
                                   gate.name().substr(0, 64) + "\""});
  }
  if (!figure_of(gate)) {
    bad.push_back(
        {at("metric"), "\"" + gate.task().substr(0, 64) + " " + gate.metric().substr(0, 64) +
                           "\" is not a task and metric that a job measures: use one of " +
                           figure_names()});
  }
  if (!gate.has_threshold() || !std::isfinite(gate.threshold()))
    bad.push_back({at("threshold"), "must be a finite number"});
  if (!gate.has_op()) bad.push_back({at("op"), "must be one of OP_GE, OP_LE"});
  check_choice(gate.has_op(), gate.op(), Gate::Op_IsValid, at("op"), "OP_GE, OP_LE", bad);
  check_choice(gate.has_against(), gate.against(), Gate::Against_IsValid, at("against"),
               "AGAINST_BASE, AGAINST_ABSOLUTE", bad);
  check_choice(gate.has_use(), gate.use(), Gate::Use_IsValid, at("use"), "USE_BOUND, USE_POINT",
               bad);
  check_choice(gate.has_on_fail(), gate.on_fail(), Gate::OnFail_IsValid, at("on_fail"),
               "ON_FAIL_BLOCK_ALIAS, ON_FAIL_FAIL_JOB, ON_FAIL_WARN", bad);
}

}  // namespace

bool needs_probe(const FineTuningJobSpec& spec) {
  return spec.watchdog().base_guard().kl_max() > 0 ||
         std::any_of(spec.gates().begin(), spec.gates().end(),
                     [](const Gate& gate) { return gate.task() == "base_guard"; });
}

void fill_gate(Gate& gate) {
  const GateFigure* figure = figure_of(gate);
  if (!gate.has_name()) gate.set_name(gate.task() + "." + gate.metric());
  if (!gate.has_against())
    gate.set_against(figure && figure->of_base ? Gate::AGAINST_BASE : Gate::AGAINST_ABSOLUTE);
  if (!gate.has_use())
    gate.set_use(figure && !figure->interval ? Gate::USE_POINT : Gate::USE_BOUND);
  if (!gate.has_on_fail()) gate.set_on_fail(Gate::ON_FAIL_BLOCK_ALIAS);
}

std::string gate_condition(const Gate& gate) {
  const bool least = gate.op() == Gate::OP_GE;
  std::ostringstream text;
  text.precision(10);
  text << gate.task() << "." << gate.metric();
  if (gate.against() == Gate::AGAINST_BASE) text << " - base";
  text << (least ? " >= " : " <= ") << gate.threshold();
  if (gate.use() == Gate::USE_BOUND) text << (least ? ", low end" : ", high end");
  return text.str();
}

std::vector<BadValue> bad_gates(const FineTuningJobSpec& spec) {
  std::vector<BadValue> bad;
  if (spec.gates_size() > kMostGates) {
    bad.push_back({"gates",
                   "has " + std::to_string(spec.gates_size()) + " entries, " +
                       std::to_string(kMostGates) + " are allowed",
                   true});
    return bad;
  }
  std::set<std::string> names;
  for (int i = 0; i < spec.gates_size(); ++i) {
    check_gate(spec.gates(i), i, bad);
    Gate gate = spec.gates(i);
    fill_gate(gate);
    if (!names.insert(gate.name()).second)
      bad.push_back({gate_path(i, "name"), "\"" + gate.name() + "\" is given twice"});
  }
  return bad;
}

std::vector<BadValue> gate_conflicts(const FineTuningJobSpec& spec) {
  std::vector<BadValue> bad;
  const bool branch = spec.has_dex() || spec.method_case() == FineTuningJobSpec::METHOD_NOT_SET;
  for (int i = 0; i < spec.gates_size(); ++i) {
    Gate gate = spec.gates(i);
    const GateFigure* figure = figure_of(gate);
    if (!figure) continue;  // bad_gates says so
    fill_gate(gate);
    const std::string what = gate.task() + " " + gate.metric();
    if (gate.against() == Gate::AGAINST_BASE && !figure->of_base) {
      bad.push_back(
          {gate_path(i, "against"), what + " is nothing that the base has: use AGAINST_ABSOLUTE"});
    }
    if (gate.use() == Gate::USE_BOUND && !figure->interval)
      bad.push_back({gate_path(i, "use"), what + " has no interval: use USE_POINT"});
    if (gate.task() == "branch_effect" && !branch)
      bad.push_back({gate_path(i, "task"), "branch_effect needs method dex, which has a branch"});
  }
  return bad;
}

}  // namespace dex::proto
