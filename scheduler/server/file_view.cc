#include "scheduler/server/file_view.h"

#include "scheduler/server/times.h"

namespace dex::server {

v1::File file_view(const store::FileRecord& record) {
  v1::File file;
  if (!file.ParseFromString(record.info)) file.Clear();
  file.set_id(record.id);
  file.set_filename(record.filename);
  file.set_purpose(v1::FILE_PURPOSE_FINE_TUNE);
  file.set_bytes(record.bytes);
  file.set_sha256(record.sha256);
  file.set_state(record.state == "READY"     ? v1::FILE_STATE_READY
                 : record.state == "INVALID" ? v1::FILE_STATE_INVALID
                                             : v1::FILE_STATE_PROCESSING);
  *file.mutable_create_time() = timestamp(record.created_ms);
  return file;
}

}  // namespace dex::server
