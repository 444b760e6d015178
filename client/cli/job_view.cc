#include "client/cli/job_view.h"

#include <google/protobuf/descriptor.h>

#include <array>
#include <cstdio>
#include <ctime>

#include "client/cli/names.h"

namespace dex::cli {

namespace {

std::string number(double value, const char* pattern) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

std::string state_text(const v1::FineTuningJob& job) {
  std::string text = short_name(job.state());
  if (job.state() == v1::JOB_STATE_QUEUED &&
      job.waiting_reason() != v1::WAITING_REASON_UNSPECIFIED) {
    text += " (" + short_name(job.waiting_reason()) + ")";
  }
  return text;
}

std::string progress_text(const v1::FineTuningJob& job) {
  if (job.progress().total_steps() == 0) return "–";
  return std::to_string(job.progress().step()) + "/" + std::to_string(job.progress().total_steps());
}

std::string loss_text(const v1::FineTuningJob& job) {
  const auto& metrics = job.metrics();
  if (!metrics.has_base_valid_loss() || !metrics.has_valid_loss()) return "";
  return number(metrics.base_valid_loss(), "%.4f") + " → " + number(metrics.valid_loss(), "%.4f");
}

// Scalars of a message as "path value source" rows, depth first.
void add_values(const google::protobuf::Message& message, const std::string& prefix,
                const google::protobuf::Map<std::string, std::string>& sources, Table& table) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    const std::string path = prefix + field->name();
    if (field->is_repeated()) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      add_values(reflection->GetMessage(message, field), path + ".", sources, table);
      continue;
    }
    std::string value;
    switch (field->cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
        value = number(reflection->GetDouble(message, field), "%g");
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_ENUM:
        value = reflection->GetEnum(message, field)->name();
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
        value = reflection->GetString(message, field);
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        value = reflection->GetBool(message, field) ? "true" : "false";
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_UINT32:
        value = std::to_string(reflection->GetUInt32(message, field));
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
        value = std::to_string(reflection->GetInt64(message, field));
        break;
      default:
        continue;
    }
    const auto source = sources.find(path);
    const std::string from = source == sources.end() ? "" : source->second;
    // What holds for every job is left out: the page is for what this job decides.
    if (from != "DEFAULT") table.push_back({"  " + path, value, from});
  }
}

}  // namespace

std::string local_time(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "";
  const std::time_t seconds = time.seconds();
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> buffer{};
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M", &parts);
  return buffer.data();
}

Table job_table(const std::vector<v1::FineTuningJob>& jobs) {
  Table table = {{"ID", "STATE", "STEP", "MODEL", "CREATED", "VALIDATION LOSS", "RESULT"}};
  for (const auto& job : jobs) {
    table.push_back({job.id(), state_text(job), progress_text(job), job.model(),
                     local_time(job.create_time()), loss_text(job), job.fine_tuned_model()});
  }
  return table;
}

Table job_details(const v1::FineTuningJob& job) {
  Table table = {{"JOB", job.id()}};
  const auto add = [&](const std::string& key, const std::string& value) {
    if (!value.empty()) table.push_back({key, value});
  };
  add("state", state_text(job));
  if (job.state() == v1::JOB_STATE_RUNNING) add("phase", short_name(job.phase()));
  if (job.has_queue_position()) add("queue position", std::to_string(job.queue_position()));
  add("attempt", job.attempt() ? std::to_string(job.attempt()) : "");
  add("model", job.model());
  add("preset", job.effective_config().preset_version());
  add("created", local_time(job.create_time()));
  add("step", progress_text(job));
  if (job.progress().has_train_loss())
    add("training loss", number(job.progress().train_loss(), "%.4f"));
  add("validation loss", loss_text(job));
  if (job.branch_effect().verdict() != v1::BranchEffect::VERDICT_UNSPECIFIED) {
    add("branch effect", short_name(job.branch_effect().verdict()) + " (" +
                             number(job.branch_effect().value(), "%.5f") +
                             " of the heads' output)");
  }
  add("adapter", job.fine_tuned_model());
  for (const auto& warning : job.warnings()) add("warning", warning);
  if (!job.error().code().empty()) add("error", job.error().code() + ": " + job.error().message());
  return table;
}

std::string estimate_text(const v1::Estimate& estimate, const Terminal& terminal) {
  Table values = {{"EFFECTIVE VALUE", "", "FROM"}};
  add_values(estimate.effective_config().spec(), "", estimate.effective_config().sources(), values);
  std::string text = render(values, terminal) + "\n";
  Table facts = {{"ESTIMATE", ""}};
  facts.push_back({"  updates", std::to_string(estimate.total_steps()) + " of about " +
                                    std::to_string(estimate.train_tokens_per_step()) + " tokens"});
  facts.push_back({"  time", human_seconds(estimate.expected_duration_seconds()) + "  (" +
                                 human_seconds(estimate.low_seconds()) + " to " +
                                 human_seconds(estimate.high_seconds()) + ")"});
  facts.push_back(
      {"  peak memory", human_bytes(static_cast<double>(estimate.peak_host_memory_bytes()))});
  facts.push_back({"  trained parameters",
                   human_count(static_cast<double>(estimate.trained_parameters())) + ", added " +
                       human_count(static_cast<double>(estimate.added_parameters()))});
  facts.push_back({"  adapter", human_bytes(static_cast<double>(estimate.artifact_bytes())) +
                                    ", class " + estimate.artifact_class()});
  text += render(facts, terminal);
  for (const auto& warning : estimate.warnings()) text += "  ! " + warning + "\n";
  for (const auto& blocker : estimate.blockers()) text += red(terminal, "  x " + blocker) + "\n";
  return text;
}

}  // namespace dex::cli
