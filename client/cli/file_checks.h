#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// `dexctl files validate`.
struct ValidateFlags {
  std::string target;            // a local path, or the id of an uploaded file
  std::string model, tokenizer;  // of an uploaded file; a model's folder, for a local one
  std::string fix;               // where a repaired copy of a local file goes
  std::string preset;
  uint32_t max_seq_length = 0;  // 0: the job's own choice; of a local file no limit
  uint32_t max_findings = 1000;
  double skip_budget_ratio = 0;  // of a local file, as an upload would have it
};

// Checks a file on this machine with the server's code; no server is asked. With `tokenizer` the
// token layer too. The id of the answer is empty, its findings are all that were kept. A file with
// faults is INVALID, and that is no error; `message` says why. Blocks on the disk.
struct LocalCheck {
  v1::File file;
  std::string message;
};
base::Result<LocalCheck> check_local_file(const ValidateFlags& flags, std::stop_token stop);

// Adds validate and preview to the noun `files`.
void add_file_checks(CLI::App& noun, Action& action);

}  // namespace dex::cli
