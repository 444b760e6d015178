#pragma once

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "worker/serve/adapter_artefacts.h"

namespace dex::serve {

// One attempt of a job about one adapter (adapter_import, adapter_export) under an agent: makes
// final/ of the attempt's directory, or says why not, in one last frame. It takes seconds to a few
// minutes, so a Stop frame is not looked at; the agent's signals end it. Returns the exit code of
// jobs.md §6.
int run_artefact_frames(const internal::v1::ArtefactStart& start, base::FrameChannel& channel);

// Method, first layer and λ of the job that would have made the adapter, as far as a job that goes
// on from it must have them alike; values that an effective spec has are set. Only of a regular
// one.
dex::v1::FineTuningJobSpec made_as(const ImportedAdapter& adapter);

}  // namespace dex::serve
