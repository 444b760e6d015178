#include "worker/agent/evaluator_start.h"

namespace dex::agent {

base::Result<iv1::EvaluatorStart> evaluator_start(const iv1::ClaimedJob& job,
                                                  const std::vector<BaseModelEntry>& models,
                                                  const DataPaths& paths) {
  const std::string name =
      job.evaluation().subjects().empty() ? "" : job.evaluation().subjects(0).model();
  const auto* model = find_model(models, name);
  if (model == nullptr) {
    return base::not_found("MODEL_NOT_FOUND",
                           "this worker has no model '" + name + "' in its allow-list");
  }
  iv1::EvaluatorStart start;
  start.set_job_id(job.job_id());
  *start.mutable_spec() = job.evaluation();
  start.set_model_dir(model->folder.string());
  start.set_base_weights_sha256(model->weights_sha256);
  for (const auto& claimed : job.evaluation_files()) {
    auto& file = *start.add_files();
    file = claimed;
    DEX_ASSIGN_OR_RETURN(const auto path, paths.absolute(claimed.path()));
    file.set_path(path.string());
  }
  for (const auto& claimed : job.evaluated_adapters()) {
    auto& adapter = *start.add_adapters();
    adapter = claimed;
    DEX_ASSIGN_OR_RETURN(const auto path, paths.absolute(claimed.path()));
    adapter.set_path(path.string());
  }
  if (job.has_checkpoint()) {
    DEX_ASSIGN_OR_RETURN(const auto checkpoint, paths.absolute(job.checkpoint().uri()));
    start.set_checkpoint_dir(checkpoint.string());
    start.set_checkpoint_manifest_sha256(job.checkpoint().manifest_sha256());
  }
  start.set_attempt(job.attempt());
  return start;
}

}  // namespace dex::agent
