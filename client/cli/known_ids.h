#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/client.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dex::cli {

// What an argument names.
enum class IdKind {
  kNone,
  kFile,
  kJob,
  kEvaluation,
  kAdapter,
  kModel,
  kModelOrAdapter,
  kPreset,
  kWorker
};

// Of an argument or option of `command`, by the names that they have all over dexctl ("id" of
// `jobs …` is a job). Pure.
IdKind id_kind(const CLI::App& command, const CLI::Option& option);
// Of a resource_type in the server's errors ("job"). Pure.
IdKind id_kind(std::string_view resource_type);

// The ids of that kind that the server has, of lists the newest hundred; empty when it can't be
// asked: for completion and "did you mean", which may go without. Waits up to the client's timeout.
std::vector<std::string> known_ids(client::Client& client, IdKind kind);

}  // namespace dex::cli
