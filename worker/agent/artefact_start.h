#pragma once

#include <string>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/status.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/model_list.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// ClaimedJob::kind of jobs about one adapter: one that is uploaded, one that leaves as a model.
bool is_about_an_adapter(const std::string& kind);

// The first frame of such a job's process, without its attempt's directory: absolute paths in place
// of those below the data directory. MODEL_NOT_FOUND when this worker has not the base;
// PATH_NOT_ALLOWED. Pure.
base::Result<iv1::ArtefactStart> artefact_start(const iv1::ClaimedJob& job,
                                                const std::vector<BaseModelEntry>& models,
                                                const DataPaths& paths);

}  // namespace dex::agent
