#pragma once

#include <string>

#include "services/base/status.h"

namespace dex::base {

// The system's error as a Status: "what: No space left on device".
//   ENOSPC           RESOURCE_EXHAUSTED STORAGE_FULL    the disk is full: somebody else's turn
//   EDQUOT, EFBIG    RESOURCE_EXHAUSTED QUOTA_EXCEEDED  this user's limit
//   ENOENT, ENOTDIR  NOT_FOUND FILE_MISSING
//   EEXIST, ENOTEMPTY ALREADY_EXISTS FILE_EXISTS
//   EACCES, EPERM    PERMISSION_DENIED PATH_NOT_ALLOWED
//   anything else    INTERNAL IO_ERROR
Status errno_status(int error, std::string what);

}  // namespace dex::base
