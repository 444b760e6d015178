#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dex/v1/events.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "proto/spec_values.h"

namespace dex::proto {

// Gates of a spec (finetuning.proto, Gate), for scheduler, trainer, agent and client alike. What
// only those on tasks of EvaluationService have is gate_tasks.h.

// Whether anything measures KL to the base: the guard, or a gate on task base_guard.
bool needs_probe(const dex::v1::FineTuningJobSpec& spec);

// Sets what the gates leave open to its default.
void fill_gates(dex::v1::FineTuningJobSpec& spec);

// What the gate asks, for people: "held_out.loss - base <= 0, high end". Of a filled gate.
std::string gate_condition(const dex::v1::Gate& gate);

// What is wrong with the gates each by itself, and names given twice. Paths are "gates[0].metric".
std::vector<BadValue> bad_gates(const dex::v1::FineTuningJobSpec& spec);
// What the figure that a gate names does not have: a base's, an interval, a branch, an adapter
// beside its base.
std::vector<BadValue> gate_conflicts(const dex::v1::FineTuningJobSpec& spec);

struct MeasuredFigure {
  double value = 0;
  std::optional<double> low, high;  // both or neither: it has no interval
  int64_t n = 0;
};
struct GateLimit {
  bool at_least = false;  // GE; else LE
  bool bound = true;      // the interval's pessimistic end decides; else the value
  double threshold = 0;
};
// The pessimistic end is the low one for GE, the high one for LE. A limit on a bound that isn't
// there, and any limit on a figure that is not a number, is not kept.
bool passes(const GateLimit& limit, const MeasuredFigure& figure);

// Over how many rows or samples a bootstrap's end may decide. The percentile bootstrap of a handful
// is too narrow: it never sees what is not among them. Of figures exactly at the threshold, which
// 2.5 % should pass, 25 % do over 2 rows, 13 % over 3, 10 % over 4, 9 % over 5, 7 % over 6, 5 %
// over 10 and 4 % over 20 (normally distributed; simulated). Below six even all of them going one
// way is chance at 95 % (sign test), which is also where evaluations give no verdict.
inline constexpr int64_t kFewestForBound = 6;
// Why the end of a bootstrap's interval can't decide; empty: it can.
std::string undecided_bound(const MeasuredFigure& figure);

// What a filled gate says of its task's rows (gate_tasks.h, gate_evaluation): the adapter's row of
// its metric and dims, or that row's difference. The rows of a gate that compares with another
// adapter have the difference to that one in place of the base's. Where there is none it has not
// passed.
dex::v1::GateResult judge_gate(
    const dex::v1::Gate& gate,
    const google::protobuf::RepeatedPtrField<dex::v1::EvaluationRow>& rows);
// The same where its task could not be measured at all.
dex::v1::GateResult unmeasured_gate(const dex::v1::Gate& gate, const std::string& why);

// "gate quality passed: perplexity.loss - base <= 0, high end; -0.12 (-0.2 to -0.05) over 40 rows"
std::string gate_sentence(const dex::v1::GateResult& result);
// What goes behind the figure, whatever the gate made of it, where its interval is over too few
// samples to be trusted, or where it is a difference of two single runs that their seeds may have
// made; "" elsewhere.
std::string gate_caveat(const dex::v1::GateResult& result);

}  // namespace dex::proto
