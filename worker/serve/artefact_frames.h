#pragma once

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "services/base/signals.h"
#include "worker/serve/adapter_artefacts.h"

namespace dex::serve {

// One attempt of a job about one adapter (adapter_import, adapter_export) under an agent: makes
// final/ of the attempt's directory, or says why not, in one last frame. A Stop frame, a signal or
// an agent that is gone ends the process at once with exit code 16: LibTorch can't be interrupted,
// and half an artefact is none. Returns the exit code of jobs.md §6.
int run_artefact_frames(const internal::v1::ArtefactStart& start, base::FrameChannel& channel,
                        const base::StopSignals& signals);

// Method, first layer and λ of the job that would have made the adapter, as far as a job that goes
// on from it must have them alike; values that an effective spec has are set. Only of a regular
// one.
dex::v1::FineTuningJobSpec made_as(const ImportedAdapter& adapter);

}  // namespace dex::serve
