#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dex/v1/files.pb.h"
#include "scheduler/server/blob_store.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/request_key.h"
#include "scheduler/server/result_files.h"
#include "scheduler/store/file_repository.h"
#include "services/auth/principal.h"
#include "services/base/files.h"
#include "services/base/ids.h"
#include "services/base/status.h"
#include "services/data/validator.h"

namespace dex::server {

// Uploaded data files and the result files of jobs (FileService), without gRPC. Blocks on disk and
// store. Thread-safe.
class Files {
 public:
  struct Options {
    int max_files = 100;  // a tenant
    data::Limits limits;
  };
  // All outlive this object.
  Files(store::FileRepository& files, BlobStore& blobs, const DataLayout& layout,
        base::UlidGenerator& ids, ResultFiles& results, Options options)
      : files_(files),
        blobs_(blobs),
        layout_(layout),
        ids_(ids),
        results_(results),
        options_(options) {}

  // The next chunk; nullopt: the client is through; an error ends the upload.
  using Chunks = std::function<base::Result<std::optional<std::string>>()>;
  // Checks the bytes while they arrive and stores them under their hash. A file with faults is
  // stored as INVALID and says so: that is no error. The same request_id with the same header and
  // bytes gives the first file. After an error nothing is left.
  base::Result<Answer<v1::File>> upload(const auth::Principal& who,
                                        const v1::UploadFileRequest::Header& header,
                                        const Chunks& chunks);

  base::Result<v1::File> get(const auth::Principal& who, const v1::GetFileRequest& request);
  base::Result<v1::ListFilesResponse> list(const auth::Principal& who,
                                           const v1::ListFilesRequest& request);
  base::Result<v1::ListFindingsResponse> findings(const auth::Principal& who,
                                                  const v1::ListFindingsRequest& request);
  // FILE_IN_USE while a live job names it, and of a result file, which goes with its job.
  base::Result<Answer<v1::DeleteFileResponse>> remove(const auth::Principal& who,
                                                      const v1::DeleteFileRequest& request);
  // The bytes in pieces of 256 KiB; `sink` answers false when nobody listens any more.
  base::Status download(const auth::Principal& who, const v1::DownloadFileRequest& request,
                        const std::function<bool(std::string)>& sink);

 private:
  base::Result<store::FileRepository::Put> keep(const std::string& tenant,
                                                const v1::UploadFileRequest::Header& header,
                                                const base::FileWriter& written,
                                                const data::Report& report);

  store::FileRepository& files_;
  BlobStore& blobs_;
  const DataLayout& layout_;
  base::UlidGenerator& ids_;
  ResultFiles& results_;
  const Options options_;
};

}  // namespace dex::server
