#include "client/cli/job_view.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>

#include "client/cli/names.h"
#include "proto/gates.h"
#include "services/base/clock.h"
#include "services/rpc/times.h"

namespace dex::cli {

namespace {

std::string number(double value, const char* pattern) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

// Why a paused job waits for a resume; nothing where the user asked for it.
std::string pause_text(v1::PauseReason reason) {
  if (reason == v1::PAUSE_REASON_AWAITING_START) return " (checked, waits for its start)";
  return reason == v1::PAUSE_REASON_DISK_FULL ? " (the workers' disks are full)" : "";
}

std::string state_text(const v1::FineTuningJob& job) {
  const bool queued = job.state() == v1::JOB_STATE_QUEUED;
  if (queued) return short_name(job.state()) + waiting_text(job.waiting_reason());
  return short_name(job.state()) + pause_text(job.pause_reason());
}

std::string progress_text(const v1::FineTuningJob& job) {
  if (job.progress().total_steps() == 0) return "–";
  const std::string early = job.early_stopped() ? " (stopped early)" : "";
  return std::to_string(job.progress().step()) + "/" +
         std::to_string(job.progress().total_steps()) + early;
}

std::string loss_text(const v1::FineTuningJob& job) {
  const auto& metrics = job.metrics();
  if (!metrics.has_base_valid_loss() || !metrics.has_valid_loss()) return "–";
  return number(metrics.base_valid_loss(), "%.4f") + " → " + number(metrics.valid_loss(), "%.4f");
}

// T beside its share of the updates, which is what a number of them says (method.md §12): "90 of
// 180 updates (T/N 0.50)". Empty where λ is not annealed, or nobody has counted the updates.
std::string annealing_text(const v1::FineTuningJobSpec& spec, int64_t updates, bool guess) {
  const auto& lambda = spec.dex().lambda();
  if (lambda.anneal_case() == v1::Lambda::ANNEAL_NOT_SET || updates <= 0) return "";
  const auto all = static_cast<double>(updates);
  const int64_t asked =
      lambda.anneal_case() == v1::Lambda::kAnnealSteps
          ? lambda.anneal_steps()
          : static_cast<int64_t>(std::floor(lambda.anneal_fraction() * all + 0.5));
  const int64_t steps = std::min(asked, updates);
  const std::string of = (guess ? " of about " : " of ") + std::to_string(updates);
  return std::to_string(steps) + of + " updates (T/N " +
         number(static_cast<double>(steps) / all, "%.2f") + ")" +
         (asked > steps ? ", asked for " + std::to_string(asked) : "");
}

// "passed: held_out.loss - base <= 0, high end; -0.1200 (-0.2000 to -0.0500)".
std::string gate_text(const v1::GateResult& result) {
  std::string text = (result.passed() ? "passed: " : "not passed: ") + result.condition() + "; ";
  if (!result.not_measured().empty()) return text + "not measured: " + result.not_measured();
  text += number(result.value(), "%.4f");
  if (result.has_low() && result.has_high()) {
    text += " (" + number(result.low(), "%.4f") + " to " + number(result.high(), "%.4f") + ")";
  }
  return text + proto::gate_caveat(result);
}

std::string scalar_text(const google::protobuf::Message& message,
                        const google::protobuf::FieldDescriptor& field) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(reflection->GetDouble(message, &field), "%g");
    case FieldDescriptor::CPPTYPE_ENUM:
      return short_name(*reflection->GetEnum(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::to_string(reflection->GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(reflection->GetInt64(message, &field));
    default:
      return "";
  }
}

// Of a map with scalar values, "key=value" of each entry, by key.
std::vector<std::string> entry_texts(const google::protobuf::Message& message,
                                     const google::protobuf::FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  std::map<std::string, std::string> sorted;
  for (int i = 0; i < reflection->FieldSize(message, &field); ++i) {
    const auto& entry = reflection->GetRepeatedMessage(message, &field, i);
    const auto& type = *entry.GetDescriptor();
    sorted[scalar_text(entry, *type.map_key())] = scalar_text(entry, *type.map_value());
  }
  std::vector<std::string> out;
  for (const auto& [key, value] : sorted) out.push_back(key + "=" + value);
  return out;
}

using Sources = google::protobuf::Map<std::string, std::string>;

// "--set hyperparameters.micro_batch_size=1 …": what to give instead.
std::string changes_text(const google::protobuf::Map<std::string, uint32_t>& changes) {
  std::map<std::string, uint32_t> sorted;
  for (const auto& [path, value] : changes) sorted[path] = value;
  std::string text;
  for (const auto& [path, value] : sorted)
    text += (text.empty() ? "--set " : " --set ") + path + "=" + std::to_string(value);
  return text;
}

// Scalars and maps of a message as rows of path, value, source, depth first. Paths and values are
// as --set takes them; a map has a row for each entry.
void add_values(const google::protobuf::Message& message, const std::string& prefix,
                const Sources& sources, Table& table) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    const std::string path = prefix + field->name();
    if (field->is_map()) {
      const auto source = sources.find(path);
      for (const std::string& entry : entry_texts(message, *field))
        table.push_back({path, entry, source == sources.end() ? "" : lower(source->second)});
      continue;
    }
    if (field->is_repeated()) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      add_values(reflection->GetMessage(message, field), path + ".", sources, table);
      continue;
    }
    const auto source = sources.find(path);
    const std::string from = source == sources.end() ? "" : source->second;
    // What holds for every job is left out: the page is for what this job decides.
    if (!from.starts_with("DEFAULT"))
      table.push_back({path, scalar_text(message, *field), lower(from)});
  }
}

}  // namespace

std::string waiting_text(v1::WaitingReason reason) {
  switch (reason) {
    case v1::WAITING_REASON_CAPACITY:
      return " (for a worker)";
    case v1::WAITING_REASON_QUOTA:
      return " (limit of running jobs)";
    case v1::WAITING_REASON_RETRY_BACKOFF:
      return " (for the next try)";
    case v1::WAITING_REASON_MODEL:
      return " (no worker has its base model and knows its tasks)";
    default:
      return "";
  }
}

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
  Table table = {{"ID", "STATE", "STEP", "MODEL", "CREATED", "VALIDATION LOSS", "ADAPTER"}};
  for (const auto& job : jobs) {
    table.push_back({job.id(), state_text(job), progress_text(job), job.model(),
                     local_time(job.create_time()), loss_text(job),
                     job.fine_tuned_model().empty() ? "–" : job.fine_tuned_model()});
  }
  return table;
}

std::string heartbeat_text(const v1::FineTuningJob& job, int64_t now_ms) {
  if (!job.has_heartbeat_time()) return "";
  const auto seconds = [now_ms](const google::protobuf::Timestamp& time) {
    return static_cast<double>(rpc::unix_ms(time) - now_ms) / 1000;
  };
  const double ago = std::max(0.0, -seconds(job.heartbeat_time()));  // clocks differ a little
  const double left = seconds(job.lease_expire_time());
  return human_seconds(ago) + " ago, " +
         (left > 0 ? "lease for " + human_seconds(left)
                   : "lease over for " + human_seconds(-left) + ": its worker is given up soon");
}

Table job_details(const v1::FineTuningJob& job) {
  Table table = {{"JOB", job.id()}};
  const auto add = [&](const std::string& key, const std::string& value) {
    if (!value.empty() && value != "–") table.push_back({key, value});
  };
  add("state", state_text(job));
  if (job.state() == v1::JOB_STATE_RUNNING) add("phase", words(short_name(job.phase())));
  if (job.has_queue_position()) add("queue position", std::to_string(job.queue_position()));
  add("worker", job.worker());
  add("heartbeat", heartbeat_text(job, base::SystemClock().now_ms()));
  if (job.has_estimated_start_time()) add("starts about", local_time(job.estimated_start_time()));
  add("attempt", job.attempt() ? std::to_string(job.attempt()) : "");
  add("model", job.model());
  add("name", job.display_name());
  for (const auto& [key, value] : job.metadata()) add("metadata " + key, value);
  constexpr uint32_t kUsualPriority = 4;
  // An older server says none, which reads as 0.
  const bool unusual = job.priority() != kUsualPriority && job.priority() != 0;
  if (unusual && !job.has_end_time()) add("priority", std::to_string(job.priority()));
  add("preset", job.effective_config().preset_version());
  add("created", local_time(job.create_time()));
  add("step", progress_text(job));
  add("annealing", annealing_text(job.effective_config().spec(), job.progress().total_steps(),
                                  /*guess=*/false));
  if (job.progress().has_train_loss())
    add("training loss", number(job.progress().train_loss(), "%.4f"));
  add("validation loss", loss_text(job));
  const bool chooses = job.effective_config().spec().early_stopping().enabled();
  if (chooses && job.metrics().served_step() != job.progress().step() &&
      job.metrics().has_best_step())
    add("published step", std::to_string(job.metrics().served_step()) + ", the best");
  const auto verdict = job.branch_effect().verdict();
  if (verdict != v1::BranchEffect::VERDICT_UNSPECIFIED &&
      verdict != v1::BranchEffect::VERDICT_NOT_APPLICABLE) {
    add("branch effect", short_name(verdict) + " (" + number(job.branch_effect().value(), "%.5f") +
                             " of the heads' output)");
  }
  if (job.metrics().has_base_kl())
    add("KL to the base", number(job.metrics().base_kl(), "%.4f") + " nats a token");
  if (job.metrics().has_gradient_range())
    add("gradient range", number(job.metrics().gradient_range(), "%.2f") + " of the median norm");
  for (const auto& result : job.gate_results()) add("gate " + result.gate(), gate_text(result));
  if (job.has_promotable()) add("promotable", job.promotable() ? "yes" : "no");
  add("adapter", job.fine_tuned_model());
  for (const auto& warning : job.warnings()) add("warning", warning);
  if (!job.error().code().empty()) add("error", job.error().code() + ": " + job.error().message());
  add("nearest that fits", changes_text(job.error().out_of_memory().nearest_fit()));
  return table;
}

Table value_table(const v1::FineTuningJobSpec& spec, const Sources& sources) {
  Table table = {{"FIELD", "VALUE", "FROM"}};
  add_values(spec, "", sources, table);
  for (const auto& gate : spec.gates()) {
    table.push_back({"gates." + gate.name(),
                     proto::gate_condition(gate) + ", else " + short_name(gate.on_fail()), "user"});
  }
  return table;
}

namespace {

// "1.20 EUR  (0.72 to 3.00)": the band is that of the time.
std::string cost_text(const v1::Estimate& estimate) {
  const double expected = estimate.expected_duration_seconds();
  const double a_second = expected > 0 ? estimate.cost() / expected : 0;
  return number(estimate.cost(), "%.2f") + " " + estimate.cost_currency() + "  (" +
         number(a_second * estimate.low_seconds(), "%.2f") + " to " +
         number(a_second * estimate.high_seconds(), "%.2f") + ")";
}

}  // namespace

std::string estimate_text(const v1::Estimate& estimate, const Terminal& terminal) {
  const auto& config = estimate.effective_config();
  std::string text = render(value_table(config.spec(), config.sources()), terminal) + "\n";
  Table facts = {{"ESTIMATE", ""}};
  // Unless they were asked for, only a tokenizer counts the updates.
  const bool guess = config.spec().hyperparameters().max_steps() == 0 && !estimate.has_probe();
  facts.push_back({"  updates", (guess ? "about " : "") + std::to_string(estimate.total_steps()) +
                                    " of about " +
                                    std::to_string(estimate.train_tokens_per_step()) + " tokens"});
  const std::string annealing = annealing_text(config.spec(), estimate.total_steps(), guess);
  if (!annealing.empty()) facts.push_back({"  annealing", annealing});
  facts.push_back({"  time", human_seconds(estimate.expected_duration_seconds()) + "  (" +
                                 human_seconds(estimate.low_seconds()) + " to " +
                                 human_seconds(estimate.high_seconds()) + ")"});
  if (estimate.has_cost()) facts.push_back({"  cost", cost_text(estimate)});
  const auto& probe = estimate.probe();
  facts.push_back(
      {"  peak memory", human_bytes(static_cast<double>(estimate.peak_host_memory_bytes())) +
                            (estimate.has_probe() ? ", measured" : "")});
  if (estimate.has_probe()) {
    facts.push_back({"  measured", "an update of " + std::to_string(probe.step_tokens()) +
                                       " tokens in " + number(probe.step_seconds(), "%.1f") +
                                       " s; micro-batch " +
                                       std::to_string(probe.micro_batch_size()) + ", longest row " +
                                       std::to_string(probe.longest_row_tokens()) + " tokens"});
  }
  facts.push_back({"  trained parameters",
                   human_count(static_cast<double>(estimate.trained_parameters())) + ", added " +
                       human_count(static_cast<double>(estimate.added_parameters()))});
  facts.push_back({"  adapter", human_bytes(static_cast<double>(estimate.artifact_bytes())) +
                                    ", class " + estimate.artifact_class()});
  text += render(facts, terminal);
  for (const auto& warning : estimate.warnings()) text += "  ! " + warning + "\n";
  for (const auto& blocker : estimate.blockers()) text += red(terminal, "  x " + blocker) + "\n";
  if (!estimate.nearest_fit().empty())
    text += "  the nearest that fits: " + changes_text(estimate.nearest_fit()) + "\n";
  return text;
}

}  // namespace dex::cli
