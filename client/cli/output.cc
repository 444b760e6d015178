#include "client/cli/output.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <ostream>

#include "client/cli/exit_code.h"

namespace dex::cli {

namespace {

std::vector<size_t> widths_of(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  return widths;
}

// The rows of a list's reply: its first repeated message field; null: it has none.
const google::protobuf::FieldDescriptor* rows_of(const google::protobuf::Message& reply) {
  const auto& type = *reply.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    if (field->is_repeated() && !field->is_map() && field->message_type() != nullptr) return field;
  }
  return nullptr;
}

}  // namespace

Format format_of(const std::string& name) {
  if (name == "json") return Format::kJson;
  if (name == "jsonl") return Format::kJsonl;
  return name == "id" ? Format::kId : Format::kTable;
}

std::string render(const Table& table, const Terminal& terminal) {
  const auto widths = widths_of(table);
  std::string text;
  for (size_t r = 0; r < table.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < table[r].size(); ++i) {
      line += table[r][i];
      if (i + 1 < table[r].size())
        line += std::string(widths[i] - display_width(table[r][i]) + 2, ' ');
    }
    text += (r == 0 ? bold(terminal, line) : line) + "\n";
  }
  return text;
}

std::string to_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

Output::Output(Format format, Terminal terminal, bool quiet, std::ostream& out, std::ostream& err)
    : format_(format), terminal_(terminal), quiet_(quiet), out_(out), err_(err) {}

void Output::result(const google::protobuf::Message& message, const std::string& id,
                    const Table& table) {
  switch (format_) {
    case Format::kJson:
    case Format::kJsonl:
      out_ << to_json(message) << "\n";
      break;
    case Format::kId:
      out_ << id << "\n";
      break;
    case Format::kTable:
      out_ << render(table, terminal_);
      break;
  }
  out_.flush();
}

void Output::list(const google::protobuf::Message& message, const std::vector<std::string>& ids,
                  const Table& table, const std::string& nothing) {
  if (format_ == Format::kId) {
    for (const auto& id : ids) out_ << id << "\n";
    out_.flush();
  } else if (format_ == Format::kTable && table.size() < 2) {
    note(nothing);
  } else if (const auto* rows = rows_of(message); format_ == Format::kJsonl && rows != nullptr) {
    const auto& reflection = *message.GetReflection();
    for (int i = 0; i < reflection.FieldSize(message, rows); ++i)
      out_ << to_json(reflection.GetRepeatedMessage(message, rows, i)) << "\n";
    out_.flush();
  } else {
    result(message, "", table);
  }
}

void Output::note(const std::string& line) {
  if (!quiet_) err_ << line << std::endl;
}

void Output::detail(const std::string& line) {
  if (verbose_) err_ << dim(terminal_, line) << std::endl;
}

int Output::failure(const base::Status& status) {
  last_failure_ = status;
  const int code = exit_code(status);
  if (code == kInterrupted) return code;
  err_ << red(terminal_, "error") << " " << status.message();
  if (!status.reason().empty()) err_ << dim(terminal_, "  [" + status.reason() + "]");
  err_ << std::endl;
  if (status.violations().size() > 1) {
    for (const auto& violation : status.violations()) {
      err_ << "  " << violation.field << ": " << violation.description << "\n";
    }
    err_.flush();
  }
  for (const auto& [key, value] : status.metadata()) detail("  " + key + " " + value);
  return code;
}

}  // namespace dex::cli
