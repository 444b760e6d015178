// Adapters that a job's gates compare its own with (finetuning.proto, Gate.adapter): what can be
// known of them before hours of training.
#include <string>
#include <vector>

#include "proto/gate_tasks.h"
#include "scheduler/core/gate_controls.h"
#include "scheduler/server/fine_tuning_jobs.h"
#include "scheduler/server/job_view.h"

namespace dex::server {

namespace {

base::Status gate_mismatch(const std::string& field, const std::string& what) {
  return base::failed_precondition("ADAPTER_MISMATCH", field + " " + what)
      .with_violation(field, what);
}

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += (text.empty() ? "" : "; ") + sentence;
  return text;
}

}  // namespace

base::Status FineTuningJobs::check_gate_adapters(const std::string& tenant,
                                                 const v1::FineTuningJobSpec& spec,
                                                 const v1::Model& model) {
  for (int i = 0; i < spec.gates_size(); ++i) {
    const v1::Gate& gate = spec.gates(i);
    if (!proto::compares_with_other(gate)) continue;
    const std::string at = "gates[" + std::to_string(i) + "].", field = at + "adapter";
    const auto record = parts_.adapters.get(tenant, gate.adapter());
    if (!record.ok()) {
      const base::Status& found = record.status();
      if (found.code() != base::Code::kNotFound) return found;
      return base::Status(found.code(), found.reason(), field + ": " + found.message())
          .with_violation(field, found.message());
    }
    const std::string base = base_of_adapter(record->id);
    if (base != model.name())
      return gate_mismatch(field, "is one of " + base + ", not of " + model.name());
    const v1::Adapter adapter = adapter_view(*record);
    // The operator's list need not name a hash; then the worker compares alone.
    if (!model.weights_sha256().empty() && adapter.base_weights_sha256() != model.weights_sha256())
      return gate_mismatch(field, "was made on other weights of " + base + " than there are now");
    if (adapter.method() == "diff" && gate.evaluation().has_head_analysis()) {
      const std::string what = "compares head by head, and " + record->id +
                               " of method diff has other heads than its base: use another task";
      return base::Status(base::Code::kInvalidArgument, "CONFLICTING_FIELDS",
                          at + "evaluation " + what)
          .with_violation(at + "evaluation", what);
    }
    if (gate.against() == v1::Gate::AGAINST_KVO_ONLY)
      DEX_RETURN_IF_ERROR(check_control(tenant, field, *record, spec));
  }
  return {};
}

base::Status FineTuningJobs::check_control(const std::string& tenant, const std::string& field,
                                           const store::AdapterRecord& record,
                                           const v1::FineTuningJobSpec& spec) {
  const v1::Adapter adapter = adapter_view(record);
  if (adapter.method() != "kvo_only") {
    return gate_mismatch(field, "is of method " + adapter.method() +
                                    ", and the control is one of method kvo_only; for another "
                                    "adapter use AGAINST_ADAPTER");
  }
  if (adapter.origin() == v1::Adapter::ORIGIN_IMPORTED) {
    return gate_mismatch(field,
                         "was imported, so nobody knows that it was trained on the job's rows; for "
                         "another adapter use AGAINST_ADAPTER");
  }
  const auto made = maker_of(tenant, record, adapter);
  DEX_RETURN_IF_ERROR(made.status());
  const auto differences = core::control_differences(spec, *made);
  if (differences.empty()) return {};
  return gate_mismatch(field, "is no control of this job, since more than the branch differs: " +
                                  joined(differences));
}

}  // namespace dex::server
