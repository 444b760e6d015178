#pragma once

#include <functional>
#include <semaphore>
#include <stop_token>

#include "dex/v1/files.pb.h"
#include "scheduler/server/blob_store.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/server/model_texts.h"
#include "scheduler/store/file_repository.h"
#include "services/auth/principal.h"
#include "services/base/status.h"

namespace dex::server {

// ValidateFile and PreviewFile, without gRPC: stored files read again with the code of the trainer.
// Blocks on disk and store, and on the tokenizer for as long as the file takes. Thread-safe.
class FileChecks {
 public:
  struct Parts {  // all outlive this object
    store::FileRepository& files;
    BlobStore& blobs;
    const ModelCatalog& models;
    ModelTexts& texts;
  };
  explicit FileChecks(Parts parts) : parts_(parts) {}

  // Tells `sink` how far it is, what it found, the figures, and last the verdict. `sink` answers
  // false when nobody listens any more: then CANCELLED. RESOURCE_NOT_FOUND, FILE_INVALID of a file
  // for evaluations or without bytes, MODEL_NOT_FOUND, and the errors of resolve_encoding.
  base::Status validate(const auth::Principal& who, const v1::ValidateFileRequest& request,
                        const std::function<bool(v1::ValidateFileResponse)>& sink);

  // Reads the file from its start up to what is shown. Same errors; CANCELLED if stopped;
  // RATE_LIMITED where two are being read.
  base::Result<v1::PreviewFileResponse> preview(const auth::Principal& who,
                                                const v1::PreviewFileRequest& request,
                                                const std::stop_token& stop);

 private:
  struct Encoded;  // a model's text and how its rows are encoded
  base::Result<v1::File> readable(const auth::Principal& who, const std::string& id);
  base::Result<Encoded> encoded(const std::string& model, const v1::RowEncoding& asked,
                                const v1::File& file);
  // The stored bytes in pieces, until `take` answers false or an error.
  base::Status read(const v1::File& file,
                    const std::function<base::Result<bool>(std::string_view)>& take);

  Parts parts_;
  // One may read a file of gigabytes up to its end: never all threads for short calls at once.
  std::counting_semaphore<> previews_{2};
};

}  // namespace dex::server
