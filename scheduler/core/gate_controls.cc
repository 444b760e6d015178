#include "scheduler/core/gate_controls.h"

#include "proto/deterministic_bytes.h"
#include "scheduler/core/fields.h"

namespace dex::core {

namespace {

// method.md §12: runs are compared only with the same data order. Early stopping is of it, since it
// decides how much of it is seen.
constexpr const char* kDataOrder[] = {"model",
                                      "training_file",
                                      "validation_file",
                                      "validation_split",
                                      "seed",
                                      "hyperparameters.n_epochs",
                                      "hyperparameters.max_steps",
                                      "hyperparameters.batch_size",
                                      "hyperparameters.max_seq_length",
                                      "hyperparameters.packing",
                                      "hyperparameters.truncation",
                                      "hyperparameters.train_on_inputs",
                                      "early_stopping.enabled"};
// When a run that may be cut short is, and what it then publishes.
constexpr const char* kStopping[] = {"early_stopping.patience",     "early_stopping.min_delta",
                                     "early_stopping.warmup_evals", "early_stopping.restore_best",
                                     "evaluation.every_steps",      "evaluation.max_tokens"};
// Of W_K, W_V, W_O, which dex trains beside its branch as the control does.
constexpr const char* kTraining[] = {
    "hyperparameters.learning_rate", "hyperparameters.lr_scheduler_type",
    "hyperparameters.warmup_ratio",  "hyperparameters.max_grad_norm",
    "hyperparameters.weight_decay",  "hyperparameters.adam_beta1",
    "hyperparameters.adam_beta2",    "hyperparameters.first_layer"};

using Spec = dex::v1::FineTuningJobSpec;

void add_difference(const Spec& job, const Spec& control, const std::string& path,
                    std::vector<std::string>& out) {
  if (same_field(job, control, path)) return;
  const auto text = [&path](const Spec& spec) {
    return has_field(spec, path) ? field_text(spec, path) : std::string("unset");
  };
  out.push_back(path + " is " + text(job) + ", and " + text(control) + " there");
}

// How a job draws its rows, as bytes to compare: weights are a map, which has no order of its own.
// A job of before does not say, and reads them as they are.
std::string drawn_rows(const Spec& spec) {
  dex::v1::Hyperparameters rows;
  const auto by = spec.hyperparameters().group_by();
  rows.set_group_by(by == dex::v1::Hyperparameters::GROUP_BY_UNSPECIFIED
                        ? dex::v1::Hyperparameters::GROUP_BY_NONE
                        : by);
  *rows.mutable_group_weights() = spec.hyperparameters().group_weights();
  return proto::deterministic_bytes(rows);
}

void add_drawing(const Spec& job, const Spec& control, std::vector<std::string>& out) {
  if (drawn_rows(job) == drawn_rows(control)) return;
  const size_t known = out.size();
  add_difference(job, control, "hyperparameters.group_by", out);
  if (out.size() == known) out.push_back("hyperparameters.group_weights are others there");
}

}  // namespace

std::vector<std::string> control_differences(const Spec& job, const Spec& control) {
  std::vector<std::string> out;
  for (const char* path : kDataOrder) add_difference(job, control, path, out);
  add_drawing(job, control, out);
  if (job.early_stopping().enabled() && control.early_stopping().enabled()) {
    for (const char* path : kStopping) add_difference(job, control, path, out);
  }
  if (job.dex().train() != dex::v1::DexMethod::TRAIN_KVO_DEX) return out;
  for (const char* path : kTraining) add_difference(job, control, path, out);
  return out;
}

}  // namespace dex::core
