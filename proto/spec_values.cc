#include "proto/spec_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>

#include "proto/gates.h"

namespace dex::proto {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kMost = 1 << 20;  // of what the trainer counts in 32 bits
constexpr double kUpdates = 10'000'000;

// api.md §3; where it names no limit, one that keeps the arithmetic of a job finite. Limits that
// depend on the model or on other values are not here but in scheduler/core/check_spec.cc.
constexpr Limits kLimits[] = {
    {"validation_split", 0, 0.5},
    {"skip_budget_ratio", 0, 0.1},
    {"priority", 0, 9},
    {"max_retries", 0, 10},
    {"deadline_seconds", 0, 1e9},
    {"seed", -kAny, kAny},

    {"dex.bottleneck.width_ratio", 0.01, 16},
    {"dex.head_selection.fraction", 0, 1, true},  // 0 would still train one a layer
    {"dex.head_selection.tau", -1000, 1000},
    {"dex.head_selection.eta", -1000, 1000},
    {"dex.head_selection.calibration.n_sequences", 1, 1024},
    {"dex.head_selection.calibration.seq_length", 16, kMost},
    {"dex.head_selection.calibration.skip_rows", 0, kMost},
    {"dex.head_selection.reselect_every_steps", 0, kUpdates},
    {"dex.head_selection.soft_floor", 0, 0.5},
    {"dex.lambda.init", -10, 10},
    {"dex.lambda.learn_init", -10, 10},
    {"dex.lambda.start", -10, 10},
    {"dex.lambda.end", -10, 10},
    {"dex.lambda.value", -10, 10},
    {"dex.lambda.anneal_fraction", 0, 1},
    {"dex.lambda.anneal_steps", 0, kAny},  // clamped to the run

    {"dex.lora.r", 1, 256},
    {"dex.lora.alpha", 0, 1e6, true},
    {"dex.lora.dropout", 0, 0.99},
    {"lora.r", 1, 256},
    {"lora.alpha", 0, 1e6, true},
    {"lora.dropout", 0, 0.99},
    {"adapter.size", 1, 4096},
    {"diff.mix_in_ratio", 0, 1, true},

    {"hyperparameters.n_epochs", 1, 100},
    {"hyperparameters.max_steps", 0, kUpdates},
    {"hyperparameters.max_seq_length", 16, kMost},
    {"hyperparameters.batch_size", 1, 4096},
    {"hyperparameters.micro_batch_size", 1, 4096},
    {"hyperparameters.learning_rate", 0, 1e6, true},
    {"hyperparameters.learning_rate_multiplier", 0.01, 100},
    {"hyperparameters.branch_learning_rate", 0, 1e6, true},
    {"hyperparameters.lambda_learning_rate", 0, 1e6, true},
    {"hyperparameters.warmup_ratio", 0, 0.5},
    {"hyperparameters.max_grad_norm", 0, 1e6, true},
    {"hyperparameters.weight_decay", 0, 1},
    {"hyperparameters.adam_beta1", 0, 0.9999},
    {"hyperparameters.adam_beta2", 0, 0.999999},
    {"hyperparameters.first_layer", 0, kMost},  // and below the model's layers

    {"evaluation.every_steps", 0, kUpdates},
    {"evaluation.max_tokens", 0, 1e9},
    {"checkpoints.every_steps", 0, kUpdates},
    {"checkpoints.every_seconds", 1, 1e7},
    {"checkpoints.keep_last", 1, 64},
    {"early_stopping.patience", 1, 1000},
    {"early_stopping.min_delta", 0, 100},
    {"early_stopping.warmup_evals", 0, 1000},
    {"watchdog.non_finite_patience", 1, 1000},
    {"watchdog.max_rollbacks", 0, 100},
    {"watchdog.stall_seconds", 1, 86400},
    {"watchdog.loss_factor", 1, 1000, true},
    {"watchdog.loss_patience", 1, 100'000},
    {"watchdog.base_guard.kl_max", 0, 100},
    {"watchdog.base_guard.every_evals", 1, 1000},
};

std::string shown(double value) {
  std::ostringstream out;
  out.precision(10);  // 10000001 and not 1e+07
  out << value;
  return out.str();
}

// The field as a number; nothing can be lost that a limit could see.
double number(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(message, &field));
    default:
      return 0;
  }
}

std::string fault_of(const Limits& limits, double value) {
  if (value >= limits.low && value <= limits.high && !(limits.above_low && value == limits.low))
    return "";
  const std::string got = ", got " + shown(value);
  if (limits.above_low && value <= limits.low)
    return "must be a number above " + shown(limits.low) + got;
  if (limits.high == kAny) return "must be ≥ " + shown(limits.low) + got;
  if (limits.above_low) return "must be at most " + shown(limits.high) + got;
  return "must be between " + shown(limits.low) + " and " + shown(limits.high) + got;
}

void check_number(const Message& message, const FieldDescriptor& field, const std::string& path,
                  std::vector<BadValue>& bad) {
  const double value = number(message, field);
  if (!std::isfinite(value)) {
    bad.push_back({path, "must be a finite number, got " + shown(value), false});
  } else if (const Limits* limits = limits_of(path)) {
    if (std::string fault = fault_of(*limits, value); !fault.empty())
      bad.push_back({path, std::move(fault), true});
  }
}

// proto3 keeps a number that the enum does not have; 0 is refused from clients (api.md §1).
void check_enum(const Message& message, const FieldDescriptor& field, const std::string& path,
                std::vector<BadValue>& bad) {
  const int value = message.GetReflection()->GetEnumValue(message, &field);
  const auto& type = *field.enum_type();
  if (value != 0 && type.FindValueByNumber(value) != nullptr) return;
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() == 0) continue;
    names += (names.empty() ? "" : ", ") + type.value(i)->name();
  }
  bad.push_back({path, "must be one of " + names + ", got " + std::to_string(value), false});
}

void check_below(const Message& message, const std::string& prefix, std::vector<BadValue>& bad) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;  // lists depend on the model, pairs have no numbers
    const std::string path = prefix + field->name();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        check_below(message.GetReflection()->GetMessage(message, field), path + ".", bad);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        check_enum(message, *field, path, bad);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
      case FieldDescriptor::CPPTYPE_BOOL:
        break;
      default:
        check_number(message, *field, path, bad);
    }
  }
}

// Train FULL_DEX with a branch that can't be folded.
std::vector<BadValue> fold_conflicts(const dex::v1::FineTuningJobSpec& spec) {
  using Dex = dex::v1::DexMethod;
  const Dex& dex = spec.dex();
  if (dex.train() != Dex::TRAIN_FULL_DEX) return {};
  const std::string needs =
      " and can't be folded, as train FULL_DEX needs; choose another one, or another train";
  if (dex.form() == Dex::FORM_PREFIX_MEAN || dex.form() == Dex::FORM_UNIFORM_MAP) {
    const std::string form = dex.form() == Dex::FORM_PREFIX_MEAN ? "PREFIX_MEAN" : "UNIFORM_MAP";
    return {{"dex.form", form + " keeps state between tokens" + needs, false}};
  }
  const auto activation = dex.bottleneck().activation();
  const bool activated = activation == Dex::Bottleneck::ACTIVATION_SILU ||
                         activation == Dex::Bottleneck::ACTIVATION_GELU;
  if (dex.projection() != Dex::PROJECTION_BOTTLENECK || !activated) return {};
  const std::string name = activation == Dex::Bottleneck::ACTIVATION_SILU ? "SILU" : "GELU";
  return {{"dex.bottleneck.activation", name + " is not linear" + needs, false}};
}

// What layers below first_layer can't have.
std::vector<BadValue> layer_conflicts(const dex::v1::FineTuningJobSpec& spec) {
  const uint32_t first = spec.hyperparameters().first_layer();
  if (first == 0) return {};
  const std::string path = "hyperparameters.first_layer";
  const bool whole = spec.has_full() || spec.has_diff() ||
                     spec.dex().train() == dex::v1::DexMethod::TRAIN_FULL_DEX;
  if (whole) {
    return {{path,
             std::to_string(first) +
                 " has no meaning with full, diff and train FULL_DEX, which publish a whole model; "
                 "leave it out, or choose another method",
             false}};
  }
  for (const auto& entry : spec.dex().head_selection().heads()) {
    if (entry.layer() >= first || entry.heads().empty()) continue;
    return {{"dex.head_selection.heads",
             "has heads in layer " + std::to_string(entry.layer()) +
                 ", below hyperparameters.first_layer " + std::to_string(first),
             false}};
  }
  return {};
}

// A map has no path in kLimits: its values are as many as groups are named.
std::vector<BadValue> bad_group_weights(const dex::v1::FineTuningJobSpec& spec) {
  constexpr double kLeast = 0.001, kMostWeight = 1000;
  constexpr size_t kMostGroups = 256, kNameBytes = 256;
  const std::string path = "hyperparameters.group_weights";
  const auto& weights = spec.hyperparameters().group_weights();
  if (weights.size() > kMostGroups) {
    return {{path,
             "has " + std::to_string(weights.size()) + " groups, " + std::to_string(kMostGroups) +
                 " are allowed; those that are not named weigh 1",
             true}};
  }
  // The map has no order, and an answer must not depend on chance.
  std::map<std::string, double> sorted;
  for (const auto& [group, weight] : weights) sorted[group] = weight;
  std::vector<BadValue> bad;
  for (const auto& [group, weight] : sorted) {
    if (group.size() > kNameBytes) {
      bad.push_back({path,
                     "has a group's name of " + std::to_string(group.size()) + " bytes, " +
                         std::to_string(kNameBytes) + " are allowed",
                     true});
      continue;
    }
    if (weight >= kLeast && weight <= kMostWeight) continue;
    bad.push_back({path,
                   "must be between " + shown(kLeast) + " and " + shown(kMostWeight) +
                       " for each group, got " + shown(weight) + " for \"" + group +
                       "\"; rows that are not to be read are left out of the file",
                   std::isfinite(weight)});
  }
  return bad;
}

// Weights without anything that they are of.
std::vector<BadValue> group_conflicts(const dex::v1::FineTuningJobSpec& spec) {
  using Hyper = dex::v1::Hyperparameters;
  const auto by = spec.hyperparameters().group_by();
  if (by == Hyper::GROUP_BY_TAG || by == Hyper::GROUP_BY_LANGUAGE) return {};
  if (spec.hyperparameters().group_weights().empty()) return {};
  return {{"hyperparameters.group_weights",
           "needs hyperparameters.group_by TAG or LANGUAGE: it says what the groups are", false}};
}

// What the contract knows and nothing here computes.
std::vector<BadValue> unsupported(const dex::v1::FineTuningJobSpec& spec) {
  using Hyper = dex::v1::Hyperparameters;
  if (spec.hyperparameters().precision() != Hyper::PRECISION_BF16) return {};
  return {{"hyperparameters.precision",
           "must be PRECISION_FP32 or unset: trainers compute in fp32, PRECISION_BF16 is not there",
           false}};
}

}  // namespace

std::vector<BadValue> bad_values(const dex::v1::FineTuningJobSpec& spec) {
  std::vector<BadValue> bad;
  check_below(spec, "", bad);
  for (BadValue& value : bad_group_weights(spec)) bad.push_back(std::move(value));
  for (BadValue& value : unsupported(spec)) bad.push_back(std::move(value));
  for (BadValue& gate : bad_gates(spec)) bad.push_back(std::move(gate));
  return bad;
}

std::vector<BadValue> conflicts(const dex::v1::FineTuningJobSpec& spec) {
  std::vector<BadValue> bad = fold_conflicts(spec);
  for (BadValue& layers : layer_conflicts(spec)) bad.push_back(std::move(layers));
  for (BadValue& groups : group_conflicts(spec)) bad.push_back(std::move(groups));
  for (BadValue& gate : gate_conflicts(spec)) bad.push_back(std::move(gate));
  return bad;
}

std::span<const Limits> all_limits() {
  return kLimits;
}

const Limits* limits_of(std::string_view path) {
  const auto* found = std::find_if(std::begin(kLimits), std::end(kLimits),
                                   [path](const Limits& limits) { return limits.path == path; });
  return found == std::end(kLimits) ? nullptr : found;
}

}  // namespace dex::proto
