#include "proto/gates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "proto/gate_tasks.h"

namespace dex::proto {

namespace {

using dex::v1::FineTuningJobSpec;
using dex::v1::Gate;

constexpr int kMostGates = 16;
// An evaluation has four subjects (api.md §2), of which base and result are two.
constexpr size_t kMostOthers = 2;
// In a condition, before the id of the other adapter.
constexpr std::string_view kControlMark = " - kvo_only ";

// A figure that the trainer measures.
struct TrainersFigure {
  std::string_view task, metric;
  bool of_base = false;   // the base has one that is not known beforehand
  bool interval = false;  // it is a mean over rows
};
constexpr std::array kFigures = {
    TrainersFigure{"held_out", "loss", true, true},
    TrainersFigure{"base_guard", "kl", false, true},
    TrainersFigure{"branch_effect", "value", false, false},
    TrainersFigure{"branch_effect", "ce_delta", false, false},
};

const TrainersFigure* figure_of(const Gate& gate) {
  const auto* found = std::find_if(kFigures.begin(), kFigures.end(), [&gate](const auto& figure) {
    return figure.task == gate.task() && figure.metric == gate.metric();
  });
  return found == kFigures.end() ? nullptr : found;
}

std::string figure_names() {
  std::string names;
  for (const TrainersFigure& figure : kFigures) {
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

bool is_evaluation_task(const std::string& name) {
  const auto& list = task_metrics();
  return std::any_of(list.begin(), list.end(), [&](const auto& each) { return each.task == name; });
}

// What is measured: by the trainer, or by a task.
void check_figure(const Gate& gate, int index, std::vector<BadValue>& bad) {
  if (gate.has_evaluation()) {
    for (BadValue& fault : bad_task_gate(gate, gate_path(index, "")))
      bad.push_back(std::move(fault));
    return;
  }
  if (is_evaluation_task(gate.task())) {
    bad.push_back({gate_path(index, "evaluation"), "is missing: " + gate.task() +
                                                       " needs its file and options there, {\"" +
                                                       gate.task() + "\": {\"file\": …}}"});
  } else if (!figure_of(gate)) {
    bad.push_back({gate_path(index, "metric"),
                   "\"" + gate.task().substr(0, 64) + " " + gate.metric().substr(0, 64) +
                       "\" is not a task and metric that a job measures: use one of " +
                       figure_names() + ", or give an evaluation"});
  } else if (!gate.dims().empty()) {
    bad.push_back({gate_path(index, "dims"), "belong to a gate with an evaluation"});
  }
}

bool goes_on_from_adapter(const FineTuningJobSpec& spec) {
  return spec.model().starts_with("ft:");
}

// Which other adapter a gate is against; `start`: there is one that the job goes on from.
void check_other(const Gate& gate, int index, bool start, std::vector<BadValue>& bad) {
  const auto at = [index](const std::string& field) { return gate_path(index, field); };
  const bool other = compares_with_other(gate);
  const bool asked = other || (gate.has_adapter() && !gate.has_against());
  if (asked && !gate.has_evaluation()) {
    bad.push_back({at(gate.has_against() ? "against" : "adapter"),
                   "needs an evaluation, in which the other adapter is measured too: what the "
                   "trainer measures is of the job and its base alone"});
  }
  if (gate.has_adapter() && !asked) {
    bad.push_back({at("adapter"), "has no effect without AGAINST_ADAPTER or AGAINST_KVO_ONLY"});
  } else if (gate.has_adapter() && gate.adapter().empty()) {
    bad.push_back({at("adapter"), "must be the id of an adapter"});
  }
  if (!other || gate.has_adapter()) return;
  if (gate.against() == Gate::AGAINST_KVO_ONLY) {
    bad.push_back({at("adapter"),
                   "is missing: name the adapter of a job of method kvo_only on the same rows with "
                   "the same seed"});
  } else if (!start) {
    bad.push_back({at("adapter"), "is missing: name the adapter to compare with"});
  }
}

// The spec's gates, filled: they may name so many adapters.
void check_others(const FineTuningJobSpec& filled, std::vector<BadValue>& bad) {
  std::set<std::string> others;
  for (int i = 0; i < filled.gates_size(); ++i) {
    const Gate& gate = filled.gates(i);
    if (!compares_with_other(gate) || gate.adapter().empty()) continue;
    if (others.insert(gate.adapter()).second && others.size() == kMostOthers + 1) {
      bad.push_back({gate_path(i, "adapter"),
                     "is the third adapter that gates compare with, two are allowed", true});
    }
  }
}

void check_gate(const Gate& gate, int index, std::vector<BadValue>& bad) {
  const auto at = [index](const std::string& field) { return gate_path(index, field); };
  if (gate.has_name() && !is_gate_name(gate.name())) {
    bad.push_back({at("name"), "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', got \"" +
                                   gate.name().substr(0, 64) + "\""});
  }
  check_figure(gate, index, bad);
  if (!gate.has_threshold() || !std::isfinite(gate.threshold()))
    bad.push_back({at("threshold"), "must be a finite number"});
  if (!gate.has_op()) bad.push_back({at("op"), "must be one of OP_GE, OP_LE"});
  check_choice(gate.has_op(), gate.op(), Gate::Op_IsValid, at("op"), "OP_GE, OP_LE", bad);
  check_choice(gate.has_against(), gate.against(), Gate::Against_IsValid, at("against"),
               "AGAINST_BASE, AGAINST_ABSOLUTE, AGAINST_ADAPTER, AGAINST_KVO_ONLY", bad);
  check_choice(gate.has_use(), gate.use(), Gate::Use_IsValid, at("use"), "USE_BOUND, USE_POINT",
               bad);
  check_choice(gate.has_on_fail(), gate.on_fail(), Gate::OnFail_IsValid, at("on_fail"),
               "ON_FAIL_BLOCK_ALIAS, ON_FAIL_FAIL_JOB, ON_FAIL_WARN", bad);
}

// `start`: the adapter that the job goes on from; empty: none.
void fill_gate(const std::string& start, Gate& gate) {
  const TrainersFigure* figure = gate.has_evaluation() ? nullptr : figure_of(gate);
  const bool of_base =
      gate.has_evaluation() ? !is_of_adapter_alone(gate) : figure && figure->of_base;
  if (gate.has_evaluation() && !gate.has_task()) gate.set_task(name_of_task(gate.evaluation()));
  if (!gate.has_against()) {
    gate.set_against(gate.has_adapter() ? Gate::AGAINST_ADAPTER
                     : of_base          ? Gate::AGAINST_BASE
                                        : Gate::AGAINST_ABSOLUTE);
  }
  if (gate.against() == Gate::AGAINST_ADAPTER && !gate.has_adapter() && !start.empty())
    gate.set_adapter(start);
  if (!gate.has_use())
    gate.set_use(figure && !figure->interval ? Gate::USE_POINT : Gate::USE_BOUND);
  if (!gate.has_on_fail()) gate.set_on_fail(Gate::ON_FAIL_BLOCK_ALIAS);
}

template <typename Dims>
std::map<std::string, std::string> sorted(const Dims& dims) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : dims) out[key] = value;
  return out;
}

const dex::v1::EvaluationRow* find_row(
    const Gate& gate, const google::protobuf::RepeatedPtrField<dex::v1::EvaluationRow>& rows) {
  for (const auto& row : rows) {
    if (row.subject() == kAdapterSubject && row.metric() == gate.metric() &&
        sorted(row.dims()) == sorted(gate.dims()))
      return &row;
  }
  return nullptr;
}

MeasuredFigure figure_in(const dex::v1::EvaluationRow& row, bool difference) {
  MeasuredFigure figure;
  figure.n = row.n();
  figure.value = difference ? row.delta() : row.value();
  if (difference ? row.has_delta_low() && row.has_delta_high() : row.has_low() && row.has_high()) {
    figure.low = difference ? row.delta_low() : row.low();
    figure.high = difference ? row.delta_high() : row.high();
  }
  return figure;
}

// What every result says, whatever was found.
dex::v1::GateResult result_of(const Gate& gate) {
  constexpr std::string_view kPrefix = "ON_FAIL_";
  dex::v1::GateResult result;
  result.set_gate(gate.name());
  result.set_on_fail(Gate::OnFail_Name(gate.on_fail()).substr(kPrefix.size()));
  result.set_condition(gate_condition(gate));
  return result;
}

// "[depth=50,length=2048]"
std::string dims_text(const Gate& gate) {
  std::string text;
  for (const auto& [key, value] : sorted(gate.dims()))
    text += (text.empty() ? "[" : ",") + key + "=" + value;
  return text.empty() ? "" : text + "]";
}

}  // namespace

bool needs_probe(const FineTuningJobSpec& spec) {
  return spec.watchdog().base_guard().kl_max() > 0 ||
         std::any_of(spec.gates().begin(), spec.gates().end(),
                     [](const Gate& gate) { return gate.task() == "base_guard"; });
}

void fill_gates(FineTuningJobSpec& spec) {
  std::set<std::string> taken;
  for (const Gate& gate : spec.gates()) taken.insert(gate.name());
  const std::string start = goes_on_from_adapter(spec) ? spec.model() : "";
  for (Gate& gate : *spec.mutable_gates()) {
    fill_gate(start, gate);
    if (gate.has_name()) continue;
    // The same metric of two files is a natural wish; of the trainer's figures there is one each,
    // so there the second is a slip, which bad_gates names.
    const std::string plain = gate.task() + "." + gate.metric();
    std::string name = plain;
    for (int i = 2; !taken.insert(name).second && gate.has_evaluation(); ++i)
      name = plain + "-" + std::to_string(i);
    gate.set_name(name);
  }
}

std::string gate_condition(const Gate& gate) {
  const bool least = gate.op() == Gate::OP_GE;
  std::ostringstream text;
  text.precision(10);
  text << gate.task() << "." << gate.metric() << dims_text(gate);
  if (gate.against() == Gate::AGAINST_BASE) text << " - base";
  if (gate.against() == Gate::AGAINST_ADAPTER) text << " - " << gate.adapter();
  if (gate.against() == Gate::AGAINST_KVO_ONLY) text << kControlMark << gate.adapter();
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
  FineTuningJobSpec filled;
  filled.set_model(spec.model());
  *filled.mutable_gates() = spec.gates();
  fill_gates(filled);
  check_others(filled, bad);
  for (int i = 0; i < spec.gates_size(); ++i) {
    check_gate(spec.gates(i), i, bad);
    check_other(spec.gates(i), i, goes_on_from_adapter(spec), bad);
    const std::string& name = filled.gates(i).name();
    if (!names.insert(name).second)
      bad.push_back({gate_path(i, "name"), "\"" + name + "\" is given twice"});
  }
  return bad;
}

std::vector<BadValue> gate_conflicts(const FineTuningJobSpec& spec) {
  std::vector<BadValue> bad;
  const bool branch = spec.has_dex() || spec.method_case() == FineTuningJobSpec::METHOD_NOT_SET;
  for (int i = 0; i < spec.gates_size(); ++i) {
    Gate gate = spec.gates(i);
    if (gate.has_evaluation()) {
      if (spec.has_diff() && gate.evaluation().has_head_analysis()) {
        bad.push_back({gate_path(i, "evaluation"),
                       "compares head by head, and what method diff makes has other heads than its "
                       "base: use another task, or another method"});
      }
      if (needs_branch(gate) && !branch)
        bad.push_back({gate_path(i, "metric"), gate.metric() + " needs method dex"});
      if (spec.has_kvo_only() && gate.against() == Gate::AGAINST_KVO_ONLY) {
        bad.push_back({gate_path(i, "against"),
                       "compares a job of method kvo_only, which is the control, with another one: "
                       "use AGAINST_ADAPTER"});
      }
      continue;
    }
    const TrainersFigure* figure = figure_of(gate);
    if (!figure) continue;  // bad_gates says so
    fill_gate("", gate);
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

bool passes(const GateLimit& limit, const MeasuredFigure& figure) {
  if (limit.bound && !(figure.low && figure.high)) return false;
  double decisive = figure.value;
  if (limit.bound) decisive = limit.at_least ? *figure.low : *figure.high;
  return limit.at_least ? decisive >= limit.threshold : decisive <= limit.threshold;
}

dex::v1::GateResult judge_gate(
    const Gate& gate, const google::protobuf::RepeatedPtrField<dex::v1::EvaluationRow>& rows) {
  const auto* row = find_row(gate, rows);
  if (row == nullptr)
    return unmeasured_gate(gate, "the task gave no such row: its file or the adapter lacks it");
  const bool difference = gate.against() != Gate::AGAINST_ABSOLUTE;
  if (difference && !row->has_delta()) {
    const std::string other = compares_with_other(gate) ? gate.adapter() : "the base";
    return unmeasured_gate(gate, other + " and the adapter have no sample of it in common");
  }
  const MeasuredFigure figure = figure_in(*row, difference);
  if (gate.use() == Gate::USE_BOUND && !figure.low) {
    std::ostringstream why;
    why << "one sample has no interval whose end could decide, give more data or use USE_POINT; "
           "the value is "
        << figure.value;
    return unmeasured_gate(gate, why.str());
  }
  dex::v1::GateResult result = result_of(gate);
  result.set_value(figure.value);
  if (figure.low) result.set_low(*figure.low);
  if (figure.high) result.set_high(*figure.high);
  result.set_n(figure.n);
  const GateLimit limit{gate.op() == Gate::OP_GE, gate.use() == Gate::USE_BOUND, gate.threshold()};
  // Wilson's interval holds for few samples too; differences have a bootstrap's in any case.
  const bool bootstrapped = gate.against() != Gate::AGAINST_ABSOLUTE ||
                            row->interval() != dex::v1::EvaluationRow::INTERVAL_WILSON;
  if (limit.bound && bootstrapped) result.set_not_measured(undecided_bound(figure));
  result.set_passed(result.not_measured().empty() && passes(limit, figure));
  return result;
}

std::string undecided_bound(const MeasuredFigure& figure) {
  if (figure.n >= kFewestForBound) return "";
  std::ostringstream why;
  why.precision(5);
  why << figure.n << (figure.n == 1 ? " row or sample is" : " rows or samples are")
      << " too few for an interval whose end could decide, " << kFewestForBound
      << " at least: give more data or use USE_POINT; the value is " << figure.value;
  if (figure.low && figure.high) why << " (" << *figure.low << " to " << *figure.high << ")";
  return why.str();
}

dex::v1::GateResult unmeasured_gate(const Gate& gate, const std::string& why) {
  dex::v1::GateResult result = result_of(gate);
  result.set_value(std::numeric_limits<double>::quiet_NaN());
  result.set_not_measured(why);
  return result;
}

std::string gate_sentence(const dex::v1::GateResult& result) {
  std::ostringstream text;
  text.precision(5);
  text << "gate " << result.gate() << (result.passed() ? " passed: " : " not passed: ")
       << result.condition();
  if (!result.not_measured().empty()) {
    text << "; not measured: " << result.not_measured();
    return text.str();
  }
  text << "; " << result.value();
  const bool interval = result.has_low() && result.has_high();
  if (interval) text << " (" << result.low() << " to " << result.high() << ")";
  text << " over " << result.n() << (interval ? " rows" : "") << gate_caveat(result);
  return text.str();
}

std::string gate_caveat(const dex::v1::GateResult& result) {
  std::string caveat;
  // At 95 % fewer than six could all go one way by chance, and a bootstrap never sees what is not
  // among them (services/statistics/paired.h, Comparison).
  constexpr int64_t kFirm = 6;
  if (result.has_low() && result.n() >= 1 && result.n() < kFirm) {
    caveat +=
        "; fewer than " + std::to_string(kFirm) + " may agree by chance, give the gate more data";
  }
  // method.md §2.7: no difference is called one that is smaller than the spread over seeds.
  if (result.condition().find(kControlMark) != std::string::npos)
    caveat += "; of one seed each: how far seeds spread is not in it, dexctl study measures that";
  return caveat;
}

}  // namespace dex::proto
