#include "scheduler/store/job_fields.h"

#include <cstdlib>
#include <sstream>

namespace dex::store {

const std::string& text(const Fields& fields, const std::string& name) {
  static const std::string empty;
  const auto found = fields.find(name);
  return found == fields.end() ? empty : found->second;
}

int64_t number(const Fields& fields, const std::string& name) {
  return std::strtoll(text(fields, name).c_str(), nullptr, 10);
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

JobRecord job_from(const Fields& f) {
  JobRecord job;
  job.id = text(f, "id");
  job.kind = text(f, "kind");
  job.tenant = text(f, "tenant");
  job.pool = text(f, "pool");
  job.adapter = text(f, "adapter");
  job.state = text(f, "state");
  job.want = text(f, "want");
  job.pause_reason = text(f, "pause_reason");
  job.worker = text(f, "worker");
  job.phase = text(f, "phase");
  job.progress = text(f, "progress");
  job.priority = static_cast<int>(number(f, "prio"));
  job.attempt = static_cast<int>(number(f, "attempt"));
  job.failures = static_cast<int>(number(f, "failures"));
  job.crashes = static_cast<int>(number(f, "crashes"));
  job.preempts = static_cast<int>(number(f, "preempts"));
  job.ooms = static_cast<int>(number(f, "ooms"));
  job.epoch = number(f, "epoch");
  job.revision = number(f, "rev");
  job.sequence = number(f, "seq");
  job.checkpoint = {text(f, "ckpt_uri"), text(f, "ckpt_sha"), number(f, "ckpt_step")};
  job.result_uri = text(f, "result_uri");
  job.result_sha256 = text(f, "result_sha");
  job.result = text(f, "result");
  job.why_code = text(f, "why_code");
  job.why = text(f, "why");
  job.why_details = text(f, "why_details");
  job.files = split_words(text(f, "files"));
  job.created_ms = number(f, "created_ms");
  job.enter_ms = number(f, "enter_ms");
  job.started_ms = number(f, "first_ms");
  job.finished_ms = number(f, "finished_ms");
  job.changed_ms = std::max(number(f, "state_ms"), number(f, "beat_ms"));
  job.deadline_ms = number(f, "deadline_ms");
  // The last beat may be one of an attempt before.
  if (!job.worker.empty())
    job.heartbeat_ms = std::max(number(f, "started_ms"), number(f, "beat_ms"));
  job.lease_ms = number(f, "lease_ms");
  job.attempt_ms = number(f, "started_ms");
  job.cost_seconds = std::strtod(text(f, "cost").c_str(), nullptr);
  if (f.contains("metadata")) job.metadata = text(f, "metadata");
  if (f.contains("name")) job.name = text(f, "name");
  job.archived = number(f, "archived");
  job.purging = f.contains("purging");
  return job;
}

LogEntry log_from(const Reply& entry) {
  const Fields f = entry.at(1).fields();
  LogEntry log;
  log.sequence = std::strtoll(entry.str(0).c_str(), nullptr, 10);  // stops at the dash
  log.at_ms = number(f, "ms");
  log.level = text(f, "level");
  log.type = text(f, "type");
  log.message = text(f, "message");
  log.attempt = static_cast<int>(number(f, "attempt"));
  log.data = text(f, "data");
  return log;
}

void append_events(const std::vector<NewEvent>& events, std::vector<std::string>& args) {
  args.push_back(std::to_string(events.size()));
  for (const NewEvent& event : events) {
    args.insert(args.end(),
                {std::to_string(event.at_ms), event.level, event.type, event.message, event.data});
  }
}

void append_checkpoint(const Checkpoint& checkpoint, std::vector<std::string>& args) {
  args.insert(args.end(), {checkpoint.uri, checkpoint.manifest_sha256,
                           std::to_string(checkpoint.step), checkpoint.of_training ? "1" : "0"});
}

WorkerRecord worker_from(const Fields& f) {
  WorkerRecord worker;
  worker.id = text(f, "id");
  worker.host = text(f, "host");
  worker.version = text(f, "version");
  worker.state = text(f, "state");
  worker.pools = split_words(text(f, "pools"));
  worker.slots = static_cast<int>(number(f, "slots"));
  worker.models = split_words(text(f, "models"));
  worker.info = text(f, "info");
  worker.live = text(f, "live");
  if (f.contains("clock_ahead_ms")) worker.clock_ahead_ms = number(f, "clock_ahead_ms");
  return worker;
}

}  // namespace dex::store
