#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "proto/spec_values.h"

namespace dex::proto {

// Gates of a spec (finetuning.proto, Gate), for scheduler, trainer and client alike.

// Whether anything measures KL to the base: the guard, or a gate on task base_guard.
bool needs_probe(const dex::v1::FineTuningJobSpec& spec);

// Sets what the gate leaves open to its default.
void fill_gate(dex::v1::Gate& gate);

// What the gate asks, for people: "held_out.loss - base <= 0, high end". Of a filled gate.
std::string gate_condition(const dex::v1::Gate& gate);

// What is wrong with the gates each by itself, and names given twice. Paths are "gates[0].metric".
std::vector<BadValue> bad_gates(const dex::v1::FineTuningJobSpec& spec);
// What the figure that a gate names does not have: a base's, an interval, a branch.
std::vector<BadValue> gate_conflicts(const dex::v1::FineTuningJobSpec& spec);

}  // namespace dex::proto
