#include "services/data/file_repair.h"

#include "services/base/files.h"
#include "services/data/reader.h"

namespace dex::data {

using std::literals::operator""sv;

namespace {

constexpr uint32_t kReplacement = 0xFFFD;

void add_character(uint32_t point, std::string& text) {
  const auto byte = [&](uint32_t value) { text += static_cast<char>(value); };
  const auto tail = [&](int shift) { byte(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) return byte(point);
  if (point < 0x800) {
    byte(0xC0 | (point >> 6));
    return tail(0);
  }
  if (point < 0x10000) {
    byte(0xE0 | (point >> 12));
    tail(6);
    return tail(0);
  }
  byte(0xF0 | (point >> 18));
  tail(12);
  tail(6);
  tail(0);
}

base::Status stopped(const std::stop_token& stop) {
  if (!stop.stop_requested()) return {};
  return {base::Code::kCancelled, "CLIENT_CANCELLED", "repairing stopped"};
}

// Leaves out each CR before a LF.
class LineEnds {
 public:
  std::string push(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (pending_ && c != '\n') out += '\r';
      pending_ = c == '\r';
      if (!pending_) out += c;
    }
    return out;
  }
  std::string finish() { return pending_ ? "\r" : ""; }

 private:
  bool pending_ = false;  // a CR
};

// What stands in the way of the file's text, by code.
base::Result<std::vector<std::string>> faults_of(const std::filesystem::path& path,
                                                 const std::stop_token& stop) {
  Utf8Decoder decoder;
  Validator::Options options;
  options.find_duplicates = false;
  Validator validator(options);
  DEX_RETURN_IF_ERROR(read_pieces(path, [&](std::string_view piece) {
    if (!validator.hopeless()) validator.feed(decoder.push(piece));
    return stopped(stop);
  }));
  validator.feed(decoder.finish());
  const Report report = validator.finish();
  std::vector<std::string> codes;
  if (decoder.was_utf16()) codes.emplace_back("encoding_utf16");
  if (decoder.had_mark() && !decoder.was_utf16()) codes.emplace_back("bom_removed");
  for (const char* code : {"crlf_line_endings", "json_array_file", "pretty_printed_json"})
    if (report.finding_counts.contains(code)) codes.emplace_back(code);
  return codes;
}

template <typename Lines>
base::Status rewrite(const std::filesystem::path& from, base::FileWriter& out, Lines lines,
                     const std::stop_token& stop) {
  Utf8Decoder decoder;
  DEX_RETURN_IF_ERROR(read_pieces(from, [&](std::string_view piece) -> base::Status {
    DEX_RETURN_IF_ERROR(stopped(stop));
    return out.append(lines.push(decoder.push(piece)));
  }));
  return out.append(lines.push(decoder.finish()) + lines.finish());
}

}  // namespace

std::string Utf8Decoder::push(std::string_view bytes) {
  if (encoding_ != Encoding::kUnknown) return decode(bytes);
  head_.append(bytes);
  if (head_.size() < 4) return {};
  recognize();
  return decode(head_);
}

std::string Utf8Decoder::finish() {
  std::string text;
  if (encoding_ == Encoding::kUnknown) {
    recognize();
    text = decode(head_);
  }
  if (high_ != 0 || !odd_.empty()) add_character(kReplacement, text);
  return text;
}

// Takes the mark off the head. A row begins with an ASCII character, so its zero byte tells.
void Utf8Decoder::recognize() {
  const auto mark = [&](std::string_view bytes, Encoding encoding) {
    if (!head_.starts_with(bytes)) return false;
    head_.erase(0, bytes.size());
    encoding_ = encoding;
    had_mark_ = true;
    return true;
  };
  if (mark("\xEF\xBB\xBF"sv, Encoding::kUtf8) || mark("\xFF\xFE"sv, Encoding::kUtf16Little) ||
      mark("\xFE\xFF"sv, Encoding::kUtf16Big)) {
    return;
  }
  encoding_ = Encoding::kUtf8;
  if (head_.size() < 2) return;
  if (head_[0] != 0 && head_[1] == 0) encoding_ = Encoding::kUtf16Little;
  if (head_[0] == 0 && head_[1] != 0) encoding_ = Encoding::kUtf16Big;
}

std::string Utf8Decoder::decode(std::string_view bytes) {
  if (encoding_ == Encoding::kUtf8) return std::string(bytes);
  odd_.append(bytes);
  const bool little = encoding_ == Encoding::kUtf16Little;
  std::string text;
  size_t at = 0;
  for (; at + 1 < odd_.size(); at += 2) {
    const auto low = static_cast<uint8_t>(odd_[at + (little ? 0 : 1)]);
    const auto high = static_cast<uint8_t>(odd_[at + (little ? 1 : 0)]);
    add_unit(static_cast<uint16_t>(high << 8 | low), text);
  }
  odd_.erase(0, at);
  return text;
}

void Utf8Decoder::add_unit(uint16_t unit, std::string& text) {
  const bool low = unit >= 0xDC00 && unit <= 0xDFFF, high = unit >= 0xD800 && unit <= 0xDBFF;
  if (high_ != 0 && low) {
    add_character(0x10000 + ((uint32_t{high_} - 0xD800) << 10) + (uint32_t{unit} - 0xDC00), text);
    high_ = 0;
    return;
  }
  if (high_ != 0) add_character(kReplacement, text);
  high_ = high ? unit : 0;
  if (!high) add_character(low ? kReplacement : unit, text);
}

std::string RowLines::push(std::string_view text) {
  std::string lines;
  for (const char c : text) take(c, lines);
  return lines;
}

std::string RowLines::finish() {
  return value_ ? "\n" : "";
}

// A line ends where a row's outermost bracket closes, whatever lines the row had before.
void RowLines::take(char c, std::string& lines) {
  if (string_) {
    lines += c;
    string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return;
  }
  if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return;
  const bool first = !begun_;
  begun_ = true;
  if (first && c == '[') {
    array_ = true;
    return;
  }
  if (array_ && depth_ == 0 && (c == ',' || c == ']')) {
    if (value_) lines += '\n';
    value_ = false;
    return;
  }
  value_ = true;
  lines += c;
  if (c == '"') string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && depth_ > 0 && --depth_ == 0) {
    lines += '\n';
    value_ = false;
  }
}

base::Result<std::vector<std::string>> repair_file(const std::filesystem::path& from,
                                                   const std::filesystem::path& to,
                                                   std::stop_token stop) {
  DEX_ASSIGN_OR_RETURN(std::vector<std::string> codes, faults_of(from, stop));
  DEX_ASSIGN_OR_RETURN(auto out, base::FileWriter::create(to));
  const bool apart = !codes.empty() &&
                     (codes.back() == "json_array_file" || codes.back() == "pretty_printed_json");
  DEX_RETURN_IF_ERROR(apart ? rewrite(from, out, RowLines(), stop)
                            : rewrite(from, out, LineEnds(), stop));
  DEX_RETURN_IF_ERROR(out.close());
  return codes;
}

}  // namespace dex::data
