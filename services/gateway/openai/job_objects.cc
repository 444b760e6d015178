#include "services/gateway/openai/job_objects.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "services/gateway/openai/proto_json.h"

namespace dex::gateway::openai {

namespace {

bool terminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_EXPIRED;
}

json or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

json error_of(const v1::FineTuningJob& job) {
  if (job.has_error()) {
    const auto& error = job.error();
    return {
        {"code", error.code()}, {"message", error.message()}, {"param", or_null(error.param())}};
  }
  if (job.state() != v1::JOB_STATE_EXPIRED) return nullptr;
  return {{"code", "deadline_exceeded"},
          {"message", "The job did not end within its deadline_seconds."},
          {"param", "deadline_seconds"}};
}

// When the running job should be through; only told while it is.
json estimated_finish(const v1::FineTuningJob& job) {
  const auto& progress = job.progress();
  if (job.state() != v1::JOB_STATE_RUNNING || progress.estimated_remaining_seconds() <= 0)
    return nullptr;
  if (progress.last_updated_time().seconds() == 0) return nullptr;
  return progress.last_updated_time().seconds() +
         static_cast<int64_t>(std::ceil(progress.estimated_remaining_seconds()));
}

json hyperparameters_of(const v1::FineTuningJobSpec& spec) {
  const auto& given = spec.hyperparameters();
  json object = {
      {"n_epochs", nullptr}, {"batch_size", nullptr}, {"learning_rate_multiplier", nullptr}};
  if (given.has_n_epochs()) object["n_epochs"] = given.n_epochs();
  if (given.has_batch_size()) object["batch_size"] = given.batch_size();
  if (given.has_learning_rate_multiplier())
    object["learning_rate_multiplier"] = given.learning_rate_multiplier();
  return object;
}

json method_of(const v1::FineTuningJobSpec& spec) {
  const auto* choice = v1::FineTuningJobSpec::descriptor()->FindOneofByName("method");
  const auto* field = spec.GetReflection()->GetOneofFieldDescriptor(spec, choice);
  if (field == nullptr) return nullptr;
  json block = to_json(spec.GetReflection()->GetMessage(spec, field));
  if (spec.has_hyperparameters()) block["hyperparameters"] = to_json(spec.hyperparameters());
  return {{"type", field->name()}, {field->name(), std::move(block)}};
}

json dex_of(const v1::FineTuningJob& job) {
  json dex = to_json(job);
  for (const char* key : {"id", "model", "fine_tuned_model", "metadata", "seed", "training_file",
                          "validation_file", "create_time"}) {
    dex.erase(key);
  }
  dex["state"] = lower_name(v1::JobState_Name(job.state()), "JOB_STATE_");
  if (job.phase() != v1::JOB_PHASE_UNSPECIFIED)
    dex["phase"] = lower_name(v1::JobPhase_Name(job.phase()), "JOB_PHASE_");
  return dex;
}

std::string figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// Ours have no sentence where figures say all; OpenAI's clients print the message.
std::string message_of(const v1::FineTuningEvent& event) {
  if (!event.message().empty()) return event.message();
  if (event.has_metrics()) {
    return "Step " + std::to_string(event.metrics().step()) +
           ": training loss=" + figure(event.metrics().train_loss());
  }
  if (event.has_eval_complete()) {
    return "Step " + std::to_string(event.eval_complete().step()) +
           ": validation loss=" + figure(event.eval_complete().valid_loss());
  }
  return event.type();
}

json data_of(const v1::FineTuningEvent& event) {
  const auto* choice = v1::FineTuningEvent::descriptor()->FindOneofByName("data");
  const auto* field = event.GetReflection()->GetOneofFieldDescriptor(event, choice);
  json data =
      field == nullptr ? json::object() : to_json(event.GetReflection()->GetMessage(event, field));
  if (event.has_metrics()) data["step"] = event.metrics().step();
  if (event.has_eval_complete()) {
    data["step"] = event.eval_complete().step();
    data["full_valid_loss"] = event.eval_complete().valid_loss();
    data["full_valid_mean_token_accuracy"] = event.eval_complete().token_accuracy();
  }
  return data;
}

// The id that the job's adapter has or will have (api.md §1).
std::string adapter_id(const v1::FineTuningJob& job, const std::string& organization) {
  return "ft:" + job.base_model() + ":" + organization + ":" + lower_name(job.suffix(), "") + ":" +
         job.id().substr(job.id().find('-') + 1);
}

}  // namespace

const char* status_word(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_VALIDATING_FILES:
      return "validating_files";
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_PAUSING:
    case v1::JOB_STATE_CANCELLING:
      return "running";
    case v1::JOB_STATE_PAUSED:
      return "paused";
    case v1::JOB_STATE_SUCCEEDED:
      return "succeeded";
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_EXPIRED:
      return "failed";
    case v1::JOB_STATE_CANCELLED:
      return "cancelled";
    default:
      return "queued";
  }
}

json job_object(const v1::FineTuningJob& job, const std::string& organization) {
  const auto& spec = job.effective_config().spec();
  return {{"id", job.id()},
          {"object", "fine_tuning.job"},
          {"created_at", unix_seconds(job.create_time())},
          {"finished_at", terminal(job.state()) ? unix_seconds(job.end_time()) : json()},
          {"model", job.model()},
          {"fine_tuned_model", or_null(job.fine_tuned_model())},
          {"organization_id", organization},
          {"status", status_word(job.state())},
          {"hyperparameters", hyperparameters_of(spec)},
          {"method", method_of(spec)},
          {"training_file", job.training_file()},
          {"validation_file", or_null(job.validation_file())},
          {"result_files",
           json(std::vector<std::string>(job.result_files().begin(), job.result_files().end()))},
          {"trained_tokens", terminal(job.state()) ? json(job.trained_tokens()) : json()},
          {"estimated_finish", estimated_finish(job)},
          {"seed", job.seed()},
          {"metadata",
           json(std::map<std::string, std::string>(job.metadata().begin(), job.metadata().end()))},
          {"integrations", json::array()},
          {"error", error_of(job)},
          {"dex", dex_of(job)}};
}

json event_object(const v1::FineTuningEvent& event) {
  const bool figures = event.has_metrics() || event.has_eval_complete();
  std::string level = lower_name(v1::FineTuningEvent::Level_Name(event.level()), "LEVEL_");
  if (event.level() == v1::FineTuningEvent::LEVEL_UNSPECIFIED) level = "info";
  return {{"id", event.id()},
          {"object", "fine_tuning.job.event"},
          {"created_at", unix_seconds(event.create_time())},
          {"level", level},
          {"message", message_of(event)},
          {"type", figures ? "metrics" : "message"},
          {"data", data_of(event)},
          {"dex",
           {{"type", event.type()}, {"sequence", event.sequence()}, {"attempt", event.attempt()}}}};
}

json checkpoint_object(const v1::Checkpoint& checkpoint, const v1::FineTuningJob& job,
                       const std::string& organization) {
  json metrics = {{"step", checkpoint.step()}};
  if (checkpoint.has_train_loss()) metrics["train_loss"] = checkpoint.train_loss();
  // Held-out rows are measured whole or up to evaluation.max_tokens: the same figure under both of
  // OpenAI's names.
  if (checkpoint.has_valid_loss())
    metrics["valid_loss"] = metrics["full_valid_loss"] = checkpoint.valid_loss();
  if (checkpoint.has_valid_token_accuracy()) {
    metrics["valid_mean_token_accuracy"] = metrics["full_valid_mean_token_accuracy"] =
        checkpoint.valid_token_accuracy();
  }
  json ours = {{"name", checkpoint.name()},
               {"bytes", checkpoint.bytes()},
               {"verified", checkpoint.verified()},
               {"is_best", checkpoint.is_best()},
               {"is_last", checkpoint.is_last()}};
  if (checkpoint.has_lambda_mean()) ours["lambda_mean"] = checkpoint.lambda_mean();
  if (checkpoint.has_by_layer_step()) {
    ours["by_layer_step"] = checkpoint.by_layer_step();
    ours["lambda"] = std::vector<float>(checkpoint.lambda().begin(), checkpoint.lambda().end());
    // JSON has no NaN: null where a layer has no selected head.
    ours["branch_ratio"] =
        std::vector<float>(checkpoint.branch_ratio().begin(), checkpoint.branch_ratio().end());
  }
  const bool usable = !job.fine_tuned_model().empty() && job.metrics().has_served_step() &&
                      job.metrics().served_step() == checkpoint.step();
  const std::string model =
      usable ? job.fine_tuned_model()
             : adapter_id(job, organization) + ":ckpt-step-" + std::to_string(checkpoint.step());
  ours["usable"] = usable;
  return {{"id", checkpoint.id()},
          {"object", "fine_tuning.job.checkpoint"},
          {"created_at", unix_seconds(checkpoint.create_time())},
          {"fine_tuned_model_checkpoint", model},
          {"fine_tuning_job_id", checkpoint.job()},
          {"step_number", checkpoint.step()},
          {"metrics", std::move(metrics)},
          {"dex", std::move(ours)}};
}

}  // namespace dex::gateway::openai
