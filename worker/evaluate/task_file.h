#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/data/json_line.h"

// What every reader of an evaluation's file shares: its text, and a list of what is wrong with it.
namespace dex::evaluate {

// What is wrong with a file, by line. A reader goes on after a fault, so that one report has all of
// them; a file with a fault is refused as a whole, because a score over the rows that happened to
// parse would look like the score of the file.
class FileFaults {
 public:
  explicit FileFaults(std::filesystem::path path) : path_(std::move(path)) {}
  void add(int64_t line, std::string reason);
  [[nodiscard]] size_t count() const { return count_; }
  // Throws std::runtime_error "FILE: line 3: …; line 7: …; 12 more" if there is any fault, or no
  // good row at all. `expected` says in one sentence how a right file looks.
  void check(size_t good_rows, std::string_view expected) const;

 private:
  std::filesystem::path path_;
  std::string first_;  // the first few, joined
  size_t count_ = 0;
};

// The file's text without a byte order mark, at most 512 MiB. Throws std::runtime_error for a file
// that can't be read, is empty, compressed or not UTF-8 (with the line).
std::string read_task_file(const std::filesystem::path& path);

// A JSON object of a file. `text` and the others note a fault for what is missing or of another
// kind, and then return nothing. Valid during the callback of for_each_row only.
class JsonRow {
 public:
  using Value = data::JsonLine::Value;
  JsonRow(Value root, int64_t line, FileFaults& faults)
      : root_(root), line_(line), faults_(faults) {}

  [[nodiscard]] int64_t line() const { return line_; }
  [[nodiscard]] bool has(std::string_view key) const { return root_.find(key).has_value(); }
  [[nodiscard]] std::optional<Value> find(std::string_view key) const { return root_.find(key); }
  // A string that is not blank.
  std::optional<std::string> text(std::string_view key);
  // A string, or empty where there is none.
  std::string optional_text(std::string_view key);
  // An array of at least `least` strings, none of them blank.
  std::optional<std::vector<std::string>> texts(std::string_view key, size_t least);
  // The same of one string or an array of at least one.
  std::optional<std::vector<std::string>> text_or_texts(std::string_view key);
  void fault(std::string reason) { faults_.add(line_, std::move(reason)); }

 private:
  std::optional<Value> needed(std::string_view key);

  Value root_;
  int64_t line_;
  FileFaults& faults_;
};

// Calls `visit` for each object of JSON Lines, or of a file that is one JSON array of objects.
// Blank lines are passed over. Faults of the JSON itself are noted.
void for_each_row(std::string_view text, FileFaults& faults,
                  const std::function<void(JsonRow&)>& visit);

bool is_blank(std::string_view text);

}  // namespace dex::evaluate
