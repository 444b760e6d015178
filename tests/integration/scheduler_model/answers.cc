#include "tests/integration/scheduler_model/answers.h"

#include <cstdio>

namespace dex::model {

using store::FileRepository;
using store::JobRepository;
using store::Store;
using store::WorkerRepository;

namespace {

std::string claim_words(const std::vector<std::string>& parts) {
  std::string line = "JOB";
  for (const std::string& part : parts) line += " " + (part.empty() ? "-" : part);
  return line;
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string whole(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", number);
  return text;
}

std::string claim_line(const support::StoreSnapshot::Fields& job, const std::string& spec) {
  const auto field = [&](const char* name) { return support::text_of(job, name); };
  const std::string step = field("ckpt_step");
  return claim_words({field("id"), field("epoch"), field("ckpt_uri"), field("ckpt_sha"),
                      step.empty() ? "0" : step, field("attempt"), field("ooms"), field("want"),
                      field("kind"), field("tenant"), field("pool"), field("adapter"), spec,
                      field("files")});
}

std::string sweep_line(size_t pulled, size_t deadlines, size_t leases, size_t delayed,
                       size_t uncapped, size_t lost, bool settling, size_t orphans) {
  std::string line = "OK";
  for (const size_t n : {pulled, deadlines, leases, delayed, uncapped, lost}) {
    line += " " + std::to_string(n);
  }
  return line + (settling ? " settling" : "") + " orphans " + std::to_string(orphans);
}

std::string said(const JobRepository::Submitted& answer) {
  return (answer.replayed ? "DUP " : "OK ") + joined(answer.ids);
}

std::string said(const JobRepository::Changed& answer) {
  return answer.replayed ? "DUP" : "OK " + answer.state;
}

std::string said(const JobRepository::Asked& answer) {
  return (answer.replayed ? "DUP " : "OK ") + answer.checkpoint_id;
}

std::string said(const JobRepository::Purge& answer) {
  switch (answer) {
    case JobRepository::Purge::kDone:
      return "OK";
    case JobRepository::Purge::kGone:
      return "GONE";
    case JobRepository::Purge::kReplayed:
      return "DUP";
  }
  return "?";
}

std::string said(const JobRepository::Claim& answer) {
  const store::ClaimedJob& job = answer.job;
  switch (answer.answer) {
    case JobRepository::ClaimAnswer::kNone:
      return "NONE";
    case JobRepository::ClaimAnswer::kStale:
      return "STALE";
    case JobRepository::ClaimAnswer::kDrain:
      return "DRAIN";
    case JobRepository::ClaimAnswer::kUnknown:
      return "UNKNOWN";
    case JobRepository::ClaimAnswer::kJob:
      break;
  }
  return claim_words({job.id, std::to_string(job.epoch), job.checkpoint.uri,
                      job.checkpoint.manifest_sha256, std::to_string(job.checkpoint.step),
                      std::to_string(job.attempt), std::to_string(job.ooms), job.want, job.kind,
                      job.tenant, job.pool, job.adapter, job.spec, joined(job.files)}) +
         (answer.replayed ? " known" : " new");
}

std::string said(const JobRepository::BeatReply& answer) {
  using Verdict = JobRepository::Verdict;
  if (answer.verdict == Verdict::kLost) return "LOST";
  const std::string word = answer.verdict == Verdict::kCancel  ? "CANCEL "
                           : answer.verdict == Verdict::kPause ? "PAUSE "
                                                               : "OK ";
  const std::string& asked = answer.checkpoint_request;
  return word + std::to_string(answer.expires_ms) + " " + (asked.empty() ? "-" : asked) +
         (answer.fresh ? " new" : " known");
}

std::string said(const JobRepository::Finished& answer) {
  if (answer.lost) return "LOST";
  return (answer.replayed ? "DUP " : "OK ") + answer.state;
}

std::string said(const FileRepository::Put& answer) {
  return (answer.replayed ? "DUP " : "OK ") + answer.id;
}

std::string said(const FileRepository::Deleted& answer) {
  return answer.replayed ? "DUP" : "OK";
}

std::string said(const WorkerRepository::Sign& answer) {
  if (answer.unknown) return "UNKNOWN";
  return answer.draining ? "OK draining" : "OK";
}

std::string said(const Store::Swept& answer) {
  return sweep_line(static_cast<size_t>(answer.pulled_back), static_cast<size_t>(answer.deadlines),
                    static_cast<size_t>(answer.leases), static_cast<size_t>(answer.delayed),
                    static_cast<size_t>(answer.uncapped), static_cast<size_t>(answer.workers_lost),
                    answer.settling, static_cast<size_t>(answer.orphans));
}

std::string refused(const base::Status& status) {
  std::string text = status.reason();
  if (text.empty()) text = status.to_string();
  if (status.reason() != "NAME_TAKEN") return text;
  for (const auto& [key, value] : status.metadata()) {
    if (key == "job") text += " " + value;
  }
  return text;
}

bool same_answer(const std::string& first, const std::string& again) {
  if (again == first || again.starts_with("DUP")) return true;
  return first.ends_with(" new") && again == first.substr(0, first.size() - 4) + " known";
}

}  // namespace dex::model
