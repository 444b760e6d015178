#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// The flags of `jobs create` and `jobs estimate`, as typed. Empty text means "not given".
struct SpecFlags {
  std::string spec_file;  // protobuf JSON of a FineTuningJobSpec; the flags below win over it
  std::string model, training_file, validation_file, method, preset, suffix, name;
  std::string seed, epochs, max_steps, batch_size, learning_rate, max_seq_length, patience, kl_max;
  std::vector<std::string> sets;      // path=value
  std::vector<std::string> metadata;  // key=value
  std::vector<std::string> gates;     // promote_if.h
  bool hold = false;                  // auto_start=false
};

// What --method may be: the members of the spec's oneof. `-` may stand for `_`.
inline constexpr const char* kMethods[] = {"dex", "kvo_only", "lora", "adapter", "full", "diff"};
std::string method_names();  // the same, for people: "dex, kvo_only, …"
// The method whose field `path` names: "lora.r" → "lora"; "" for what all methods share.
std::string method_of(const std::string& path);

// What the server gets. Errors name the flag or path and what would be right.
base::Result<v1::FineTuningJobSpec> make_spec(const SpecFlags& flags);

}  // namespace dex::cli
