#pragma once

#include "dex/v1/finetuning.pb.h"
#include "worker/train/spec.h"

// Private to this room; has protobuf in it, so only the spec_*.cc files include it.
namespace dex::train::detail {

// Which method a spec asks for, and its options (method.md §3, §7): sets `out.dex`, and for dex
// what goes with it (heads, λ). A spec without a method is dex.
void read_method(const dex::v1::FineTuningJobSpec& spec, JobSpec& out);

// The options of LoRA; `field` is the message's path in refusals.
void read_lora(const dex::v1::LoraMethod& in, const std::string& field, model::LoraOptions& out);

}  // namespace dex::train::detail
