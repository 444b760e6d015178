#include "worker/agent/artefact_start.h"

namespace dex::agent {

bool is_about_an_adapter(const std::string& kind) {
  return kind == "adapter_import" || kind == "adapter_export";
}

base::Result<iv1::ArtefactStart> artefact_start(const iv1::ClaimedJob& job,
                                                const std::vector<BaseModelEntry>& models,
                                                const DataPaths& paths) {
  const auto* model = find_model(models, job.base_model());
  if (model == nullptr) {
    return base::not_found("MODEL_NOT_FOUND",
                           "this worker has no model '" + job.base_model() + "' in its allow-list");
  }
  iv1::ArtefactStart start;
  start.set_job_id(job.job_id());
  start.set_model_dir(model->folder.string());
  start.set_base_model_name(model->name);
  start.set_base_weights_sha256(model->weights_sha256);
  if (job.has_adapter_import()) {
    DEX_ASSIGN_OR_RETURN(const auto path, paths.absolute(job.adapter_import().path()));
    start.mutable_adapter_import()->set_path(path.string());
  } else {
    DEX_ASSIGN_OR_RETURN(const auto path, paths.absolute(job.adapter_export().adapter().path()));
    *start.mutable_adapter_export() = job.adapter_export();
    start.mutable_adapter_export()->mutable_adapter()->set_path(path.string());
  }
  return start;
}

}  // namespace dex::agent
