#include "services/data/validator.h"

#include <algorithm>
#include <cstdio>

#include "services/data/file_signature.h"
#include "services/data/line_splitter.h"
#include "services/data/row_index.h"
#include "services/data/row_parser.h"
#include "services/text/utf8.h"

namespace dex::data {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kRowKeys[] = {"messages", "prompt", "completion", "text", "input_ids"};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// "[" or "[{": the beginning of one array that holds all rows. A line such as ["a", "b"] is
// something else.
bool begins_array_file(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with('[')) return false;
  const std::string_view next = trimmed(line.substr(1));
  return next.empty() || next.starts_with('{');
}

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", ratio * 100);
  return text;
}

}  // namespace

struct Validator::State {
  explicit State(Options given)
      : options(std::move(given)),
        findings(options.max_findings),
        parser(options.format, findings),
        splitter(options.limits.line_bytes, [this](const Line& line) { take(line); }) {}

  void feed(std::string_view bytes);
  void start();
  void take(const Line& line);
  void take_row(const Line& line, std::string_view bytes);
  void settle_cut_line(std::string_view next);
  void check_end();
  Report report();

  // A fault of the whole file: reported once, and the file is INVALID.
  void file_fault(std::string_view code, int64_t line, int64_t offset, std::string message,
                  std::string hint = "", std::string around = "");
  void file_note(std::string_view code, int64_t line, int64_t offset, std::string message);
  void line_fault(std::string_view code, Severity severity, const Line& line, size_t at,
                  std::string message, std::string hint = "");

  Options options;
  Findings findings;
  RowParser parser;
  LineSplitter splitter;
  RowIndex index;
  Statistics statistics;

  std::string head;          // the first bytes, until there are enough to tell what the file is
  bool started = false;      // they were looked at
  bool stopped = false;      // the rest of the file is not read any more
  bool saw_content = false;  // a line that is not blank
  bool saw_crlf = false;
  std::string file_message;  // of the first fault of the whole file
  // The first line, if it ended too early: is it the first of a pretty-printed file?
  struct CutLine {
    int64_t number, byte_offset;
    std::string bytes;
    JsonLine::Fault fault;
  };
  std::optional<CutLine> cut_line;
};

void Validator::State::feed(std::string_view bytes) {
  statistics.bytes += static_cast<int64_t>(bytes.size());
  if (stopped) return;
  if (statistics.bytes > options.limits.file_bytes) {
    stopped = true;
    file_fault("file_too_large", 0, options.limits.file_bytes,
               "the file has more than " + std::to_string(options.limits.file_bytes) + " bytes",
               "split it, or take a sample: a few thousand good rows teach more than a great many");
    return;
  }
  if (started) return splitter.feed(bytes);
  head.append(bytes);
  if (head.size() >= kSignatureBytes) start();
}

// Looks at the beginning, then lets it through.
void Validator::State::start() {
  started = true;
  const std::string first = std::exchange(head, {});
  if (const Signature signature = recognize(first); !signature.code.empty()) {
    stopped = true;
    file_fault(signature.code, 0, 0, std::string(signature.message), std::string(signature.hint));
    return;
  }
  std::string_view rest = first;
  if (rest.starts_with(kByteOrderMark)) {
    file_note("bom_removed", 1, 0, "the file begins with a byte order mark, which was left out");
    rest.remove_prefix(kByteOrderMark.size());
    splitter.skip(static_cast<int64_t>(kByteOrderMark.size()));
  }
  splitter.feed(rest);
}

void Validator::State::take(const Line& line) {
  if (stopped) return;
  if (line.has_carriage_return && !saw_crlf) {
    saw_crlf = true;
    file_note("crlf_line_endings", line.number, line.byte_offset,
              "lines end with CR LF, which is accepted");
  }
  // A last line without a line end that is only white space is no line.
  const std::string_view bytes = line.bytes;
  if (!line.too_long && trimmed(bytes).empty()) {
    if (line.has_line_end) {
      line_fault("blank_line", Severity::kWarning, line, 0, "the line is empty and was left out");
    }
    return;
  }
  const bool first = !saw_content;
  saw_content = true;
  if (cut_line) settle_cut_line(bytes);
  if (stopped) return;
  if (first && begins_array_file(bytes.substr(0, 4096))) {
    stopped = true;
    file_fault("json_array_file", line.number, line.byte_offset,
               "the file is one JSON array, expected one object a line (JSONL)",
               "jq -c '.[]' IN > OUT", excerpt(bytes, 0));
    return;
  }
  if (statistics.rows_good + statistics.rows_skipped == options.limits.rows) {
    stopped = true;
    file_fault("too_many_rows", line.number, line.byte_offset,
               "the file has more than " + std::to_string(options.limits.rows) + " rows",
               "split it: head -n, split -l");
    return;
  }
  take_row(line, bytes);
}

void Validator::State::take_row(const Line& line, std::string_view bytes) {
  ++statistics.rows_skipped;  // taken back below if it is good
  if (line.too_long) {
    line_fault("line_too_long", Severity::kError, line, 0,
               "the line has " + std::to_string(line.size) + " bytes, at most " +
                   std::to_string(options.limits.line_bytes) + " are read",
               "cut the text into several rows");
    return;
  }
  if (const size_t nul = bytes.find('\0'); nul != std::string_view::npos) {
    line_fault("nul_byte", Severity::kError, line, nul,
               "byte " + std::to_string(nul + 1) + " of the line is NUL, which no text holds",
               "was the file cut off or copied while it was written? tr -d '\\000' < IN > OUT");
    return;
  }
  if (const size_t bad = text::find_invalid_utf8(bytes); bad != bytes.size()) {
    if (!line.has_line_end && text::Utf8Stream().push(bytes.substr(bad)).empty()) {
      file_fault("truncated_last_line", line.number, line.byte_offset + static_cast<int64_t>(bad),
                 "the last line ends in the middle of a character",
                 "the file was cut off; upload it whole, or drop the line: head -n -1 IN > OUT",
                 excerpt(bytes, bad));
      return;
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02X", static_cast<uint8_t>(bytes[bad]));
    file_fault("invalid_utf8", line.number, line.byte_offset + static_cast<int64_t>(bad),
               "byte " + std::to_string(bad + 1) + " of line " + std::to_string(line.number) +
                   ", " + hex + ", is not UTF-8",
               "if the text is Western European: iconv -f WINDOWS-1252 -t UTF-8 IN > OUT",
               excerpt(bytes, bad));
    return;
  }
  const bool is_first_row = statistics.rows_good + statistics.rows_skipped == 1;
  RowParser::Outcome outcome =
      parser.parse(line.number, line.byte_offset, bytes, is_first_row || !line.has_line_end);
  switch (outcome.kind) {
    case RowParser::Kind::kBad:
      return;
    case RowParser::Kind::kHeader:
      --statistics.rows_skipped;
      return;
    case RowParser::Kind::kCutOff:
      cut_line =
          CutLine{line.number, line.byte_offset, std::string(bytes), std::move(*outcome.cut)};
      if (line.has_line_end) return;
      // The file ends inside this line. Whatever came before, an upload or a copy was cut off.
      file_fault("truncated_last_line", line.number,
                 line.byte_offset + static_cast<int64_t>(cut_line->fault.offset),
                 "the last line ends in the middle of a row: " + cut_line->fault.message,
                 "the file was cut off; upload it whole, or drop the line: head -n -1 IN > OUT",
                 excerpt(bytes, cut_line->fault.offset));
      cut_line.reset();
      return;
    case RowParser::Kind::kRow:
      break;
  }
  --statistics.rows_skipped;
  Row& row = *outcome.row;
  if (options.find_duplicates) {
    if (const auto earlier = index.add(text::content_hash(row.content), row.line)) {
      ++statistics.duplicate_rows;
      line_fault("duplicate_row", Severity::kWarning, line, 0,
                 "the row says the same as line " + std::to_string(*earlier),
                 "equal rows count double in training; sort -u removes equal lines");
    }
  }
  statistics.add(row);
  if (options.on_row) options.on_row(std::move(row));
}

// The first line was not whole. If the next one is not a row of its own, the two belong together.
void Validator::State::settle_cut_line(std::string_view next) {
  const CutLine line = std::move(*cut_line);
  cut_line.reset();
  JsonLine json;
  const bool next_is_object =
      json.parse(next, [](const JsonLine::Fault&) {}) && json.root().is(JsonLine::Kind::kObject);
  // A message on a line of its own, {"role": …}, is an object too, but no row.
  const bool next_is_row =
      next_is_object && std::ranges::any_of(kRowKeys, [&](std::string_view key) {
        return json.root().find(key).has_value();
      });
  const bool opens = line.bytes.find_first_of("{[") != std::string::npos;
  if (!next_is_row && !line.fault.in_string && opens) {
    stopped = true;
    file_fault("pretty_printed_json", line.number, line.byte_offset,
               "rows are spread over several lines, expected one object a line (JSONL)",
               "jq -c . IN > OUT", excerpt(line.bytes, 0));
    return;
  }
  parser.report(line.number, line.byte_offset, line.bytes, line.fault);
}

void Validator::State::check_end() {
  if (!started) start();
  if (stopped) return;
  splitter.finish();
  if (stopped) return;
  if (cut_line)
    parser.report(cut_line->number, cut_line->byte_offset, cut_line->bytes, cut_line->fault);
  if (!saw_content) {
    file_fault(
        "empty_file", 0, 0,
        statistics.bytes == 0 ? "the file is empty" : "the file holds nothing but blank lines",
        "expected one JSON object a line, such as {\"text\": \"…\"}");
    return;
  }
  if (parser.format_is_unknown()) {
    file_fault("unknown_format", parser.unknown_line(), 0,
               "no row has the keys of a known format; the first has " +
                   (parser.unknown_keys().empty() ? "none" : parser.unknown_keys()),
               "expected \"messages\", or \"prompt\" and \"completion\", or \"text\", or "
               "\"input_ids\" with "
               "\"labels\"");
  }
  if (statistics.rows_good < options.limits.minimum_rows) {
    file_fault("too_few_rows", 0, 0,
               "the file has " + std::to_string(statistics.rows_good) + " good rows, at least " +
                   std::to_string(options.limits.minimum_rows) + " are needed");
  }
}

Report Validator::State::report() {
  Report report;
  report.statistics = std::move(statistics);
  report.format = parser.format();
  report.tokenizer_sha256 = parser.tokenizer_sha256();
  report.message = file_message;
  const int64_t bad = report.statistics.rows_skipped, rows = bad + report.statistics.rows_good;
  const double bad_ratio = rows == 0 ? 0 : static_cast<double>(bad) / static_cast<double>(rows);
  if (report.message.empty() && bad_ratio > options.skip_budget_ratio) {
    report.message = std::to_string(bad) + " of " + std::to_string(rows) + " rows are bad (" +
                     percent(bad_ratio) + "), skip_budget_ratio allows " +
                     percent(options.skip_budget_ratio);
  }
  // A header whose hash is no hash is no row, and still a fault.
  if (report.message.empty() && findings.errors() > 0 && bad == 0) {
    report.message = "the header line is not usable: " + findings.first(1).front().message;
  }
  report.ready = report.message.empty();
  report.findings = findings.list();
  report.first_findings = findings.first(20);
  report.finding_counts = findings.counts();
  return report;
}

void Validator::State::file_fault(std::string_view code, int64_t line, int64_t offset,
                                  std::string message, std::string hint, std::string around) {
  if (file_message.empty()) file_message = message;
  findings.add(code, Severity::kError, [&] {
    return Finding{.line = line,
                   .byte_offset = offset,
                   .message = std::move(message),
                   .hint = std::move(hint),
                   .excerpt = std::move(around)};
  });
}

void Validator::State::file_note(std::string_view code, int64_t line, int64_t offset,
                                 std::string message) {
  findings.add(code, Severity::kInfo, [&] {
    return Finding{.line = line, .byte_offset = offset, .message = std::move(message)};
  });
}

void Validator::State::line_fault(std::string_view code, Severity severity, const Line& line,
                                  size_t at, std::string message, std::string hint) {
  findings.add(code, severity, [&] {
    return Finding{.line = line.number,
                   .byte_offset = line.byte_offset + static_cast<int64_t>(at),
                   .message = std::move(message),
                   .hint = std::move(hint),
                   .excerpt = excerpt(line.bytes, at)};
  });
}

Validator::Validator(Options options) : state_(std::make_unique<State>(std::move(options))) {}
Validator::~Validator() = default;
void Validator::feed(std::string_view bytes) {
  state_->feed(bytes);
}
bool Validator::hopeless() const {
  return state_->stopped;
}

Report Validator::finish() {
  state_->check_end();
  return state_->report();
}

}  // namespace dex::data
