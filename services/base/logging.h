#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::base {

struct LoggingOptions {
  std::string component;       // "scheduler"; stands in every line
  std::string level = "info";  // trace debug info warn error off
  std::filesystem::path file;  // empty: stderr; else appended to
};

// Sets spdlog's default logger for this process: `2026-11-29T10:00:00.123Z info scheduler: text`.
// One line a record (control characters are escaped), secrets blotted out. Call once, in main;
// after it rooms use spdlog::info("job {} is RUNNING", id). Fails on an unknown level or unwritable
// file.
Status init_logging(const LoggingOptions& options);

// What a line passes through: `dex_`, `dexw_` and `dexg_` keys become `dex_…`, line breaks and
// other control characters \n, \x07.
std::string sanitize_log_text(std::string_view text);

}  // namespace dex::base
