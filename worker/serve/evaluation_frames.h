#pragma once

#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/signals.h"

namespace dex::serve {

// `dex-engine evaluation` under an agent: one attempt of one evaluation (jobs.md §4). Waits for
// EvaluatorStart, runs the tasks that no earlier attempt has done, keeps each in step-<n>/, reports
// progress and rows, and publishes final/. A Stop frame, SIGTERM or a lost agent ends it at the
// next batch. All arguments outlive the call. Returns the exit code of jobs.md §6; the last frame
// says the same in words.
int run_evaluation_frames(base::FrameChannel& channel, const base::StopSignals& signals,
                          const base::Clock& clock);

}  // namespace dex::serve
