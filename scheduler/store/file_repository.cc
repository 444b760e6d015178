#include "scheduler/store/file_repository.h"

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

FileRecord file_from(const Fields& f) {
  FileRecord file;
  file.id = text(f, "id");
  file.tenant = text(f, "tenant");
  file.filename = text(f, "filename");
  file.purpose = text(f, "purpose");
  file.sha256 = text(f, "sha256");
  file.format = text(f, "format");
  file.state = text(f, "state");
  file.bytes = number(f, "bytes");
  file.created_ms = number(f, "created_ms");
  file.info = text(f, "info");
  return file;
}

base::Status file_not_found(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no file '" + shown(id) + "'.")
      .with_metadata("resource_type", "file")
      .with_metadata("resource_name", shown(id));
}

}  // namespace

base::Result<FileRepository::Put> FileRepository::put(const std::string& tenant,
                                                      const RequestKey& request,
                                                      const FileRecord& file, int max_files) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_RETURN_IF_ERROR(check_store_id("id", file.id));
  DEX_RETURN_IF_ERROR(check_word("sha256", file.sha256));
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"filename", file.filename}, {"purpose", file.purpose}, {"sha256", file.sha256},
      {"format", file.format},     {"state", file.state},     {"bytes", std::to_string(file.bytes)},
      {"info", file.info}};
  std::vector<std::string> args = {"put",
                                   tenant,
                                   request.id,
                                   request.digest,
                                   std::to_string(store_.times().idempotency_ms),
                                   std::to_string(max_files),
                                   file.id,
                                   std::to_string(fields.size())};
  for (const auto& [name, value] : fields) args.insert(args.end(), {name, value});
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("file", std::move(args)));
  if (reply.str(0) == "OK") return Put{file.id, false};
  if (reply.str(0) == "DUP") return Put{reply.str(1), true};
  if (reply.str(0) == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (reply.str(0) == "QUOTA") {
    return base::Status(
        base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
        "The tenant has " + reply.str(1) + " files, at most " + reply.str(2) + " are allowed.");
  }
  return unexpected("file", reply);
}

base::Result<FileRecord> FileRepository::get(const std::string& tenant, const std::string& id) {
  if (!is_name(tenant) || !is_store_id(id)) return file_not_found(id);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("read", {"file", tenant, id}));
  if (reply.str(0) == "NOTFOUND") return file_not_found(id);
  if (reply.str(0) != "OK") return unexpected("read", reply);
  FileRecord file = file_from(reply.at(1).fields());
  for (const Reply& user : reply.at(5).elements) file.users.push_back(user.text);
  return file;
}

base::Result<std::vector<FileRecord>> FileRepository::list(const std::string& tenant,
                                                           const Cursor& cursor, int count) {
  DEX_ASSIGN_OR_RETURN(const auto rows, store_.list("file", tenant, cursor, count));
  std::vector<FileRecord> files;
  for (const Reply& row : rows) files.push_back(file_from(row.at(2).fields()));
  return files;
}

base::Result<FileRepository::Deleted> FileRepository::remove(const std::string& tenant,
                                                             const std::string& id,
                                                             const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("file", {"delete", tenant, request.id, request.digest,
                                           std::to_string(store_.times().idempotency_ms), id}));
  if (reply.str(0) == "OK") return Deleted{reply.str(2), reply.num(1) == 1, false};
  if (reply.str(0) == "DUP") return Deleted{"", false, true};
  if (reply.str(0) == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (reply.str(0) == "NOTFOUND") return file_not_found(id);
  if (reply.str(0) == "INUSE") {
    return base::failed_precondition("FILE_IN_USE", "The live job " + reply.str(1) +
                                                        " needs the file '" + id +
                                                        "'; cancel it or wait for its end.")
        .with_metadata("job", reply.str(1));
  }
  return unexpected("file", reply);
}

base::Result<bool> FileRepository::named(const std::string& sha256) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"EXISTS", store_.key("blob:" + sha256)}));
  return reply.as_int() == 1;
}

base::Result<bool> FileRepository::exists(const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"EXISTS", store_.key("file:" + id)}));
  return reply.as_int() == 1;
}

base::Result<std::vector<std::string>> FileRepository::contents() {
  const std::string start = store_.key("blob:");
  std::vector<std::string> contents;
  std::string at = "0";
  do {
    DEX_ASSIGN_OR_RETURN(const Reply page,
                         store_.command({"SCAN", at, "MATCH", start + "*", "COUNT", "100"}));
    at = page.str(0);
    for (const Reply& found : page.at(1).elements)
      contents.push_back(found.text.substr(start.size()));
  } while (at != "0");
  return contents;
}

base::Result<int64_t> FileRepository::set_bytes(const std::string& sha256, bool there) {
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("file", {"bytes", "", sha256, there ? "1" : "0"}));
  if (reply.str(0) != "OK") return unexpected("file", reply);
  return reply.num(1);
}

}  // namespace dex::store
