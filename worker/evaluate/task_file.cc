#include "worker/evaluate/task_file.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "services/base/files.h"
#include "services/data/file_signature.h"
#include "services/text/utf8.h"

namespace dex::evaluate {
namespace {

constexpr int64_t kLargestFile = int64_t{512} << 20;
constexpr size_t kShownFaults = 8;

int64_t line_at(std::string_view text, size_t offset) {
  return 1 + std::ranges::count(text.substr(0, offset), '\n');
}

// Reads one JSON text, a line or a whole file; nothing where it is broken.
bool parse(data::JsonLine& json, std::string_view text, const std::function<int64_t(size_t)>& line,
           FileFaults& faults) {
  return json.parse(text, [&](const data::JsonLine::Fault& fault) {
    faults.add(line(fault.offset), fault.message);
  });
}

void read_array(std::string_view text, FileFaults& faults,
                const std::function<void(JsonRow&)>& visit) {
  data::JsonLine json;
  const auto line = [&](size_t offset) { return line_at(text, offset); };
  if (!parse(json, text, line, faults)) return;
  // Lines are counted on from row to row: counting from the top for each would be quadratic.
  size_t counted = 0;
  int64_t number = 1;
  json.root().for_each_item([&](size_t index, data::JsonLine::Value item) {
    number += std::ranges::count(text.substr(counted, item.offset() - counted), '\n');
    counted = item.offset();
    if (!item.is(data::JsonLine::Kind::kObject)) {
      faults.add(number, "item " + std::to_string(index + 1) + " is " +
                             std::string(data::describe(item.kind())) + ", must be an object");
      return;
    }
    JsonRow row(item, number, faults);
    visit(row);
  });
}

void read_line(std::string_view text, int64_t number, FileFaults& faults,
               const std::function<void(JsonRow&)>& visit) {
  data::JsonLine json;
  if (!parse(
          json, text, [&](size_t) { return number; }, faults))
    return;
  if (!json.root().is(data::JsonLine::Kind::kObject)) {
    faults.add(number,
               "is " + std::string(data::describe(json.root().kind())) + ", must be a JSON object");
    return;
  }
  JsonRow row(json.root(), number, faults);
  visit(row);
}

std::string keys_of(data::JsonLine::Value object) {
  std::string out;
  object.for_each_member([&](std::string_view key, data::JsonLine::Value) {
    out += (out.empty() ? "" : ", ") + std::string(key);
  });
  return out.empty() ? "none" : out;
}

std::string quoted(std::string_view key) {
  return '"' + std::string(key) + '"';
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

void FileFaults::add(int64_t line, std::string reason) {
  if (count_ < kShownFaults)
    first_ += (first_.empty() ? "line " : "; line ") + std::to_string(line) + ": " + reason;
  ++count_;
}

void FileFaults::check(size_t good_rows, std::string_view expected) const {
  if (count_ == 0 && good_rows > 0) return;
  std::string what = path_.string() + ": " + (count_ == 0 ? "the file holds no row" : first_);
  if (count_ > kShownFaults) what += "; " + std::to_string(count_ - kShownFaults) + " more";
  throw std::runtime_error(what + ". " + std::string(expected));
}

std::string read_task_file(const std::filesystem::path& path) {
  auto content = base::read_file(path, kLargestFile);
  if (!content.ok()) throw std::runtime_error(content.status().message());
  std::string text = std::move(content).value();
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(path.string() + ": " + what);
  };
  const data::Signature other =
      data::recognize(std::string_view(text).substr(0, data::kSignatureBytes));
  if (!other.code.empty())
    refuse(std::string(other.message) + "; repair it with: " + std::string(other.hint));
  if (const size_t bad = text::find_invalid_utf8(text); bad < text.size()) {
    refuse("line " + std::to_string(line_at(text, bad)) +
           ": is not UTF-8; repair it with: iconv -f WINDOWS-1252 -t UTF-8 IN > OUT");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (is_blank(text)) refuse("the file is empty; there is nothing to evaluate");
  return text;
}

std::optional<JsonRow::Value> JsonRow::needed(std::string_view key) {
  auto value = root_.find(key);
  if (!value) fault("has no " + quoted(key) + "; its keys are " + keys_of(root_));
  return value;
}

std::optional<std::string> JsonRow::text(std::string_view key) {
  const auto value = needed(key);
  if (!value) return std::nullopt;
  if (!value->is(data::JsonLine::Kind::kString)) {
    fault(quoted(key) + " is " + std::string(data::describe(value->kind())) + ", must be a string");
    return std::nullopt;
  }
  std::string out = value->string();
  if (is_blank(out)) {
    fault(quoted(key) + " is blank");
    return std::nullopt;
  }
  return out;
}

std::string JsonRow::optional_text(std::string_view key) {
  const auto value = root_.find(key);
  return value && value->is(data::JsonLine::Kind::kString) ? value->string() : "";
}

std::optional<std::vector<std::string>> JsonRow::texts(std::string_view key, size_t least) {
  const auto value = needed(key);
  if (!value) return std::nullopt;
  std::vector<std::string> out;
  bool good = value->is(data::JsonLine::Kind::kArray);
  if (good) {
    value->for_each_item([&](size_t, Value item) {
      good = good && item.is(data::JsonLine::Kind::kString);
      if (good) out.push_back(item.string());
      good = good && !is_blank(out.back());
    });
  }
  if (good && out.size() >= least) return out;
  fault(quoted(key) + " must be an array of at least " + std::to_string(least) +
        " strings, none of them blank");
  return std::nullopt;
}

std::optional<std::vector<std::string>> JsonRow::text_or_texts(std::string_view key) {
  const auto value = needed(key);
  if (!value) return std::nullopt;
  if (value->is(data::JsonLine::Kind::kArray)) return texts(key, 1);
  if (!value->is(data::JsonLine::Kind::kString)) {
    fault(quoted(key) + " is " + std::string(data::describe(value->kind())) +
          ", must be a string or an array of strings");
    return std::nullopt;
  }
  auto one = text(key);
  if (!one) return std::nullopt;
  return std::vector<std::string>{std::move(*one)};
}

void for_each_row(std::string_view text, FileFaults& faults,
                  const std::function<void(JsonRow&)>& visit) {
  if (text[text.find_first_not_of(" \t\r\n")] == '[') return read_array(text, faults, visit);
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (!is_blank(line)) read_line(line, number, faults, visit);
    begin = end + 1;
  }
}

}  // namespace dex::evaluate
