// What a worker is told of a job that it has claimed: the files, adapters and models that jobs of
// its kind need, by where they lie.
#include <set>
#include <utility>

#include "dex/v1/adapters.pb.h"
#include "proto/gate_tasks.h"
#include "scheduler/core/gate_tasks.h"
#include "scheduler/core/warm_start.h"
#include "scheduler/server/evaluation_view.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/workers.h"

namespace dex::server {

iv1::DesiredAdapter Workers::desired_adapter(const store::AdapterRecord& record) {
  iv1::DesiredAdapter desired;
  desired.set_id(record.id);
  desired.set_base(base_of_adapter(record.id));
  desired.set_path(record.uri);
  desired.set_content_sha256(record.sha256);
  return desired;
}

base::Result<iv1::ClaimedJob> Workers::granted(const store::ClaimedJob& claimed) {
  iv1::ClaimedJob job;
  job.set_job_id(claimed.id);
  job.set_kind(claimed.kind);
  job.set_epoch(claimed.epoch);
  job.set_attempt(static_cast<uint32_t>(claimed.attempt));
  if (!claimed.checkpoint.uri.empty()) {
    job.mutable_checkpoint()->set_uri(claimed.checkpoint.uri);
    job.mutable_checkpoint()->set_manifest_sha256(claimed.checkpoint.manifest_sha256);
    job.mutable_checkpoint()->set_step(static_cast<uint32_t>(claimed.checkpoint.step));
  }
  job.set_oom_retries(static_cast<uint32_t>(claimed.ooms));
  job.set_hold(claimed.want == "hold");
  job.set_attempt_dir(DataLayout::attempt(claimed.tenant, claimed.id, claimed.epoch));
  job.set_tenant(claimed.tenant);
  job.set_adapter_id(claimed.adapter);
  DEX_RETURN_IF_ERROR(add_work(claimed, job));
  return job;
}

base::Status Workers::add_work(const store::ClaimedJob& claimed, iv1::ClaimedJob& job) {
  if (claimed.kind == kEvaluationKind) return add_evaluation(claimed, job);
  if (claimed.kind == kAdapterImportKind) return add_import(claimed, job);
  if (claimed.kind == kAdapterExportKind) return add_export(claimed, job);
  return add_training(claimed, job);
}

base::Result<iv1::InputFile> Workers::input(const std::string& tenant, const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto file, parts_.files.get(tenant, id));
  iv1::InputFile input;
  input.set_file(id);
  input.set_path(DataLayout::blob(file.sha256));
  input.set_sha256(file.sha256);
  input.set_filename(file.filename);
  return input;
}

base::Status Workers::add_training(const store::ClaimedJob& claimed, iv1::ClaimedJob& job) {
  *job.mutable_spec() = effective_spec(claimed.spec);
  job.set_base_model(core::base_model_of(job.spec().model()));
  if (core::goes_on(job.spec())) {
    const auto start = parts_.adapters.get(claimed.tenant, job.spec().model());
    DEX_RETURN_IF_ERROR(start.status());
    *job.mutable_start_adapter() = desired_adapter(*start);
  }
  if (claimed.kind == kHeadSelectionKind && claimed.files.empty()) {  // rows of the request
    job.mutable_training_input()->set_path(DataLayout::texts(claimed.tenant, claimed.id));
    job.mutable_training_input()->set_filename("texts");
    return {};
  }
  const auto& spec = job.spec();
  const auto& guard = spec.watchdog().base_guard();
  DEX_ASSIGN_OR_RETURN(*job.mutable_training_input(), input(claimed.tenant, spec.training_file()));
  if (spec.has_validation_file()) {
    DEX_ASSIGN_OR_RETURN(*job.mutable_validation_input(),
                         input(claimed.tenant, spec.validation_file()));
  }
  if (guard.has_probe_file()) {
    DEX_ASSIGN_OR_RETURN(*job.mutable_probe_input(), input(claimed.tenant, guard.probe_file()));
  }
  const auto& calibration = spec.dex().head_selection().calibration();
  if (calibration.has_file()) {
    DEX_ASSIGN_OR_RETURN(*job.mutable_calibration_input(),
                         input(claimed.tenant, calibration.file()));
  }
  DEX_RETURN_IF_ERROR(add_gate_files(claimed.tenant, job));
  return add_gate_adapters(claimed.tenant, job);
}

base::Status Workers::add_gate_files(const std::string& tenant, iv1::ClaimedJob& job) {
  std::set<std::string> known;
  for (const core::NamedFile& named : core::gate_files(job.spec())) {
    if (!known.insert(named.id).second) continue;
    auto file = input(tenant, named.id);
    DEX_RETURN_IF_ERROR(file.status());
    *job.add_evaluation_files() = std::move(file).value();
  }
  return {};
}

// One that was deleted since costs the job no training: its gates have not passed, and say so.
base::Status Workers::add_gate_adapters(const std::string& tenant, iv1::ClaimedJob& job) {
  std::set<std::string> known;
  for (const auto& gate : job.spec().gates()) {
    if (!proto::compares_with_other(gate) || !known.insert(gate.adapter()).second) continue;
    auto adapter = adapter_files(tenant, gate.adapter());
    if (adapter.status().code() == base::Code::kNotFound) continue;
    DEX_RETURN_IF_ERROR(adapter.status());
    *job.add_evaluated_adapters() = std::move(adapter).value();
  }
  return {};
}

base::Status Workers::add_evaluation(const store::ClaimedJob& claimed, iv1::ClaimedJob& job) {
  *job.mutable_evaluation() = stored_evaluation(claimed.spec);
  for (const std::string& id : claimed.files) {
    auto file = input(claimed.tenant, id);
    DEX_RETURN_IF_ERROR(file.status());
    *job.add_evaluation_files() = std::move(file).value();
  }
  std::set<std::string> known;
  for (const auto& subject : job.evaluation().subjects()) {
    if (subject.adapter().empty() || !known.insert(subject.adapter()).second) continue;
    DEX_ASSIGN_OR_RETURN(*job.add_evaluated_adapters(),
                         adapter_files(claimed.tenant, subject.adapter()));
  }
  return {};
}

base::Result<iv1::EvaluatedAdapter> Workers::adapter_files(const std::string& tenant,
                                                           const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.adapters.get(tenant, id));
  iv1::EvaluatedAdapter adapter;
  adapter.set_id(record.id);
  adapter.set_path(record.uri);
  adapter.set_content_sha256(record.sha256);
  return adapter;
}

base::Status Workers::add_import(const store::ClaimedJob& claimed, iv1::ClaimedJob& job) {
  v1::ImportAdapterRequest::Header header;
  header.ParseFromString(claimed.spec);
  job.set_base_model(header.base_model());
  job.mutable_adapter_import()->set_path(DataLayout::uploaded_adapter(claimed.tenant, claimed.id));
  return {};
}

base::Status Workers::add_export(const store::ClaimedJob& claimed, iv1::ClaimedJob& job) {
  v1::ExportAdapterRequest request;
  request.ParseFromString(claimed.spec);
  job.set_base_model(base_of_adapter(request.adapter()));
  auto& work = *job.mutable_adapter_export();
  DEX_ASSIGN_OR_RETURN(*work.mutable_adapter(), adapter_files(claimed.tenant, request.adapter()));
  if (request.dtype() == v1::ExportAdapterRequest::DTYPE_FP32) work.set_dtype("f32");
  if (request.dtype() == v1::ExportAdapterRequest::DTYPE_BF16) work.set_dtype("bf16");
  return {};
}

}  // namespace dex::server
