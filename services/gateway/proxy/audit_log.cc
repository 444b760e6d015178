#include "services/gateway/proxy/audit_log.h"

#include <fcntl.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "services/base/errno_status.h"
#include "services/gateway/proxy/message_text.h"
#include "services/gateway/proxy/public_services.h"

namespace dex::gateway {

namespace {

constexpr size_t kLongestObject = 255;  // ids are no longer (api.md §1)

// Fields by which requests name what they change, the most particular first.
constexpr const char* kNames[] = {"id", "checkpoint", "adapter", "job", "alias"};

}  // namespace

std::string audit_line(const AuditEntry& entry) {
  const nlohmann::ordered_json line = {
      {"time", google::protobuf::util::TimeUtil::ToString(
                   google::protobuf::util::TimeUtil::MillisecondsToTimestamp(entry.time_ms))},
      {"tenant", entry.tenant},
      {"key", entry.key},
      {"method", entry.method},
      {"object", entry.object},
      {"request_id", entry.request_id},
      {"result", entry.result}};
  // What clients sent may be no UTF-8.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string audited_object(std::string_view path, const grpc::ByteBuffer& request,
                           const grpc::ByteBuffer& reply) {
  const auto asked = new_request(path);
  const bool readable = asked && parse(request, *asked);
  std::string object;
  for (const char* name : kNames) {
    if (readable && object.empty()) object = text_of(*asked, name);
  }
  if (const auto made = new_reply(path); object.empty() && made && parse(reply, *made)) {
    object = text_of(*made, "id");
    if (object.empty()) object = text_of(*made, "sweep_id");
  }
  // A quota has no other name.
  if (readable && object.empty()) object = text_of(*asked, "tenant");
  return object.substr(0, kLongestObject);
}

base::Result<std::unique_ptr<AuditLog>> AuditLog::open(const std::filesystem::path& path) {
  base::Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return base::errno_status(errno, "open the audit log " + path.string());
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file), path.string()));
}

void AuditLog::write(const AuditEntry& entry) {
  const std::string line = audit_line(entry);
  ssize_t written = 0;
  do {
    written = ::write(file_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  const bool whole = written == static_cast<ssize_t>(line.size());
  const int error = whole ? 0 : errno;
  if (failing_.exchange(!whole) || whole) return;
  spdlog::error("the audit log {} takes no lines: {}; calls go on without", path_,
                base::errno_status(error, "write").message());
}

}  // namespace dex::gateway
