#pragma once

#include "services/gateway/openai/door.h"

namespace dex::gateway::openai {

// POST /v1/files: takes the form apart as it comes and hands the file's bytes on to
// FileService.UploadFile, a chunk at a time, so that no upload is held in memory. The parts
// `purpose` and `file` may come in any order; a file whose purpose is not known yet waits in a
// temporary file without a name.
void answer_upload(const DoorPtr& door, const http::ExchangePtr& exchange);

}  // namespace dex::gateway::openai
