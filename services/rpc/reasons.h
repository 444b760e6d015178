#pragma once

#include <chrono>
#include <string_view>

#include "services/base/status.h"

namespace dex::rpc {

// One row of the error table of api.md §1: what a reason word means to the one who gets it.
struct Reason {
  std::string_view word;      // "FILE_NOT_READY"
  base::Code code;            // the gRPC status it travels with
  int http_status;            // 400 …
  std::string_view category;  // who acts: USER, SYSTEM or CAPACITY
  bool retryable;
  std::chrono::milliseconds retry_after{0};  // for RetryInfo; 0 = none
};

// The row of `word`; for a word that is not in the table the row of `code`'s usual reason, so every
// error has a category. Never fails.
const Reason& find_reason(std::string_view word, base::Code code);

// The reason that stands for a code when nobody gave one ("NOT_FOUND" → RESOURCE_NOT_FOUND).
const Reason& default_reason(base::Code code);

}  // namespace dex::rpc
