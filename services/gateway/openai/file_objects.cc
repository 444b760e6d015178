#include "services/gateway/openai/file_objects.h"

#include <map>

#include "services/gateway/openai/proto_json.h"

namespace dex::gateway::openai {

namespace {

const char* purpose_word(v1::FilePurpose purpose) {
  if (purpose == v1::FILE_PURPOSE_FINE_TUNE_RESULTS) return "fine-tune-results";
  return purpose == v1::FILE_PURPOSE_EVALS ? "evals" : "fine-tune";
}

const char* status_word(v1::FileState state) {
  if (state == v1::FILE_STATE_READY) return "processed";
  return state == v1::FILE_STATE_INVALID ? "error" : "uploaded";
}

// "line 3, $.messages[0].role: unknown_role: …; in all unknown_role 12, blank_line 2"
json status_details(const v1::File& file) {
  if (file.state() != v1::FILE_STATE_INVALID) return nullptr;
  const v1::Finding* first = nullptr;
  for (const auto& finding : file.findings()) {
    if (finding.severity() != v1::Finding::SEVERITY_ERROR) continue;
    // One of a line says more than what follows from it for the file as a whole.
    if (first == nullptr || (first->line() == 0 && finding.line() > 0)) first = &finding;
  }
  std::string text;
  if (first != nullptr) {
    if (first->line() > 0) text += "line " + std::to_string(first->line()) + ", ";
    if (!first->json_path().empty()) text += first->json_path() + ": ";
    text += first->code() + ": " + first->message();
    if (!first->hint().empty()) text += " (" + first->hint() + ")";
  }
  std::string counts;
  for (const auto& [code, count] :
       std::map<std::string, int64_t>(file.finding_counts().begin(), file.finding_counts().end())) {
    counts += (counts.empty() ? "" : ", ") + code + " " + std::to_string(count);
  }
  if (text.empty()) text = "the file has too many rows with faults, or too few without";
  return counts.empty() ? text : text + "; in all " + counts;
}

}  // namespace

json file_object(const v1::File& file) {
  json dex = to_json(file);
  // What stands in OpenAI's own fields is not said twice.
  for (const char* key : {"id", "filename", "purpose", "bytes", "create_time"}) dex.erase(key);
  return {{"id", file.id()},
          {"object", "file"},
          {"bytes", file.bytes()},
          {"created_at", unix_seconds(file.create_time())},
          {"expires_at", nullptr},
          {"filename", file.filename()},
          {"purpose", purpose_word(file.purpose())},
          {"status", status_word(file.state())},
          {"status_details", status_details(file)},
          {"dex", std::move(dex)}};
}

base::Result<v1::FilePurpose> read_purpose(const std::string& field, const std::string& word) {
  if (word == "fine-tune") return v1::FILE_PURPOSE_FINE_TUNE;
  if (word == "evals") return v1::FILE_PURPOSE_EVALS;
  return base::bad_field("UNSUPPORTED_PARAMETER", field,
                         "must be fine-tune or evals, got '" + word.substr(0, 40) + "'");
}

}  // namespace dex::gateway::openai
