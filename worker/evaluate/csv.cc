#include "worker/evaluate/csv.h"

#include <utility>

namespace dex::evaluate {
namespace {

// Walks over the text; `at` is always at the beginning of a field when field() is called.
class Csv {
 public:
  Csv(std::string_view text, FileFaults& faults) : text_(text), faults_(faults) {}

  std::vector<CsvRow> run() {
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      CsvRow row{line_, {}};
      bool good = true, more = true;
      while (more) {
        std::string field;
        good = (peek() == '"' ? quoted(row.line, field) : plain(field)) && good;
        row.fields.push_back(std::move(field));
        more = peek() == ',';
        if (more) ++at_;
      }
      end_line();
      const bool blank = row.fields.size() == 1 && is_blank(row.fields[0]);
      if (good && !blank) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\n'; }
  [[nodiscard]] bool at_line_end() const {
    return peek() == '\n' || (peek() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ||
           (peek() == '\r' && at_ + 1 == text_.size());
  }

  bool plain(std::string& field) {
    while (peek() != ',' && !at_line_end()) field += text_[at_++];
    return true;
  }

  bool quoted(int64_t row_line, std::string& field) {
    ++at_;
    for (;;) {
      if (at_ >= text_.size()) {
        faults_.add(row_line, "a quoted field that begins here is never closed");
        return false;
      }
      const char c = text_[at_++];
      if (c == '\n') ++line_;
      if (c != '"') {
        field += c;
      } else if (at_ < text_.size() && text_[at_] == '"') {
        field += '"';
        ++at_;
      } else {
        break;
      }
    }
    if (peek() == ',' || at_line_end()) return true;
    faults_.add(line_, "text follows a closing quote; a quote inside a field is written twice");
    std::string rest;
    return plain(rest) && false;
  }

  void end_line() {
    if (peek() == '\r') ++at_;
    ++at_;
    ++line_;
  }

  std::string_view text_;
  FileFaults& faults_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text, FileFaults& faults) {
  return Csv(text, faults).run();
}

}  // namespace dex::evaluate
