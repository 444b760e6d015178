#pragma once

#include <functional>

#include "services/base/status.h"

namespace dex::train {

// A failed write as the end of an attempt: STORAGE_FULL → disk_full, QUOTA_EXCEEDED →
// quota_exceeded, anything else → internal, retryable. OK does nothing.
void throw_if_bad(const base::Status& status);

// Runs `write`, and turns what it throws about a full disk or a quota into the same Failures; other
// exceptions pass.
void with_disk_failures(const std::function<void()>& write);

}  // namespace dex::train
