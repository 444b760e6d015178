#pragma once

#include <google/protobuf/message.h>

#include <iosfwd>
#include <string>
#include <vector>

#include "client/cli/terminal.h"
#include "services/base/status.h"

namespace dex::cli {

enum class Format {
  kTable,
  kJson,   // one compact line a reply
  kJsonl,  // the same, but of a list one line a row
  kId
};
Format format_of(const std::string& name);  // "table", "json", "jsonl", "id"

// A table for people: the first row is the head, columns are as wide as their widest cell.
using Table = std::vector<std::vector<std::string>>;
std::string render(const Table& table, const Terminal& terminal);

// Protobuf JSON on one line: proto names, default values, enums by name; 64-bit integers are
// strings, as protobuf has it.
std::string to_json(const google::protobuf::Message& message);

// Where results and messages go: stdout carries results only, stderr everything else.
class Output {
 public:
  Output(Format format, Terminal terminal, bool quiet, std::ostream& out, std::ostream& err);

  // One result. With --output json or jsonl the message, with id the id, else the table.
  void result(const google::protobuf::Message& message, const std::string& id, const Table& table);
  // Several results in one reply: the message, its rows one a line (jsonl), one id a line, or the
  // table. A table without rows says `nothing` on stderr instead.
  void list(const google::protobuf::Message& message, const std::vector<std::string>& ids,
            const Table& table, const std::string& nothing);
  void note(const std::string& line);       // stderr, unless quiet
  int failure(const base::Status& status);  // stderr; returns the exit code
  // The last status that failure() was given; OK: none.
  [[nodiscard]] const base::Status& last_failure() const { return last_failure_; }
  // -v: failures come with all that the server said of them, and detail() is shown.
  void be_verbose() { verbose_ = true; }
  void detail(const std::string& line);  // stderr, with -v alone
  [[nodiscard]] const Terminal& terminal() const { return terminal_; }
  [[nodiscard]] bool quiet() const { return quiet_; }
  [[nodiscard]] Format format() const { return format_; }
  std::ostream& out() { return out_; }
  std::ostream& err() { return err_; }

 private:
  Format format_;
  Terminal terminal_;
  bool quiet_;
  bool verbose_ = false;
  base::Status last_failure_;
  std::ostream& out_;
  std::ostream& err_;
};

}  // namespace dex::cli
