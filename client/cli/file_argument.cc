#include "client/cli/file_argument.h"

#include <filesystem>

#include "client/cli/file_view.h"
#include "client/cli/progress_view.h"
#include "services/base/sha256.h"

namespace dex::cli {

namespace {

constexpr int32_t kFilesLookedAt = 1000;

// The id of a good file with these bytes that the server has already; empty if there is none.
base::Result<std::string> known_file(Context& context, const std::string& path,
                                     v1::FilePurpose purpose) {
  DEX_ASSIGN_OR_RETURN(const std::string hash, base::sha256_file(path));
  v1::ListFilesRequest request;
  request.set_page_size(kFilesLookedAt);
  DEX_ASSIGN_OR_RETURN(const auto reply, context.client.list_files(request));
  for (const auto& file : reply.files()) {
    const bool same = file.sha256() == hash && file.purpose() == purpose;
    if (same && file.state() == v1::FILE_STATE_READY) return file.id();
  }
  return std::string();
}

base::Status not_uploaded(const std::string& path, v1::FilePurpose purpose) {
  return base::failed_precondition(
      "FILE_NOT_READY",
      path +
          " is not on the server, and a dry run uploads nothing; upload it first: dexctl files " +
          "upload " + path + (purpose == v1::FILE_PURPOSE_EVALS ? " --purpose evals" : ""));
}

}  // namespace

base::Result<std::string> file_argument(Context& context, const std::string& id_or_path,
                                        v1::FilePurpose purpose, Upload upload) {
  std::error_code error;
  if (id_or_path.empty() || !std::filesystem::exists(id_or_path, error)) return id_or_path;
  DEX_ASSIGN_OR_RETURN(std::string known, known_file(context, id_or_path, purpose));
  if (!known.empty()) {
    context.output.note(id_or_path + " is there already as " + known);
    return known;
  }
  if (upload == Upload::kRefused) return not_uploaded(id_or_path, purpose);
  v1::UploadFileRequest::Header header;
  header.set_purpose(purpose);
  // --request-id is that of the command's own change; a file on the way has one that follows from
  // it, the same at every repeat.
  if (!context.request_id.empty())
    header.set_request_id("file-" +
                          base::sha256_hex(context.request_id + "\n" + id_or_path).substr(0, 48));
  UploadBar bar(context.output);
  DEX_ASSIGN_OR_RETURN(
      const v1::File file,
      context.client.upload_file(id_or_path, header,
                                 [&](int64_t sent, int64_t total) { bar.show(sent, total); }));
  bar.clear();
  show_findings(context.output, file);
  if (file.state() != v1::FILE_STATE_READY) {
    return base::failed_precondition("FILE_INVALID",
                                     id_or_path + " can't be used (uploaded as " + file.id() + ")");
  }
  context.output.note("uploaded " + id_or_path + " as " + file.id());
  return file.id();
}

}  // namespace dex::cli
