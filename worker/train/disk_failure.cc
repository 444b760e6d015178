#include "worker/train/disk_failure.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "worker/train/failure.h"

namespace dex::train {
namespace {

bool says(const std::string& message, int error) {
  return message.find(std::generic_category().message(error)) != std::string::npos;
}

}  // namespace

void throw_if_bad(const base::Status& status) {
  if (status.ok()) return;
  if (status.reason() == "STORAGE_FULL")
    throw Failure(Exit::kDiskFull, "disk_full", status.message());
  if (status.reason() == "QUOTA_EXCEEDED")
    throw Failure(Exit::kQuota, "quota_exceeded", status.message());
  throw Failure(Exit::kRetryable, "internal", status.message());
}

void with_disk_failures(const std::function<void()>& write) try {
  write();
} catch (const Failure&) {
  throw;
} catch (const std::runtime_error& error) {
  // Numeric rooms throw words, not codes: the system's own text tells which it was.
  const std::string message = error.what();
  if (says(message, ENOSPC)) throw Failure(Exit::kDiskFull, "disk_full", message);
  if (says(message, EDQUOT) || says(message, EFBIG))
    throw Failure(Exit::kQuota, "quota_exceeded", message);
  throw;
}

}  // namespace dex::train
