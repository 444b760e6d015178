#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "services/base/fd.h"
#include "services/base/status.h"

namespace dex::gateway {

// Who did what to which object, and how it ended (jobs.md §10). Never a body, a display
// name or a secret: ids, aliases, words of our own, and the request's id.
struct AuditEntry {
  int64_t time_ms = 0;  // Unix milliseconds, when the call ended
  std::string tenant;
  std::string key;         // id of the API key; empty: none was asked for
  std::string method;      // "FileService.DeleteFile"
  std::string object;      // id of what it was done to; empty: there is none, or it was not made
  std::string request_id;  // x-request-id
  std::string result;      // "OK", or the error's reason
};

// One JSON object on a line, with its line break: {"time": …, "tenant": …, …} in a fixed order.
std::string audit_line(const AuditEntry& entry);

// What a method that changes something was done to: the id in its request, or of what its reply is.
// Empty when neither is a message of that method with an id in it.
std::string audited_object(std::string_view path, const grpc::ByteBuffer& request,
                           const grpc::ByteBuffer& reply);

// A file of such lines, mode 0600, that is only ever appended to: each line is one write with
// O_APPEND, so several gateways may share a file. Not synced: the machine's crash may cost the last
// lines, a killed gateway none. Thread-safe; a write blocks as long as the page cache does.
class AuditLog {
 public:
  // Errors of the file system.
  static base::Result<std::unique_ptr<AuditLog>> open(const std::filesystem::path& path);

  // A line that can't be written is lost; the first one is logged as an error, until one succeeds.
  void write(const AuditEntry& entry);

 private:
  AuditLog(base::Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  const base::Fd file_;
  const std::string path_;
  std::atomic<bool> failing_ = false;
};

}  // namespace dex::gateway
