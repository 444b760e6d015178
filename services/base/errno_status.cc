#include "services/base/errno_status.h"

#include <cerrno>
#include <system_error>

namespace dex::base {

Status errno_status(int error, std::string what) {
  std::string message = std::move(what) + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOSPC:
      return {Code::kResourceExhausted, "STORAGE_FULL", std::move(message)};
    case EDQUOT:
    case EFBIG:
      return {Code::kResourceExhausted, "QUOTA_EXCEEDED", std::move(message)};
    case ENOENT:
    case ENOTDIR:
      return {Code::kNotFound, "FILE_MISSING", std::move(message)};
    case EEXIST:
    case ENOTEMPTY:
      return {Code::kAlreadyExists, "FILE_EXISTS", std::move(message)};
    case EACCES:
    case EPERM:
      return {Code::kPermissionDenied, "PATH_NOT_ALLOWED", std::move(message)};
    default:
      return {Code::kInternal, "IO_ERROR", std::move(message)};
  }
}

}  // namespace dex::base
