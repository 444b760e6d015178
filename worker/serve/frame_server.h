#pragma once

#include <cstdint>

#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/random.h"
#include "services/base/signals.h"

namespace dex::serve {

// dex-engine under an agent (jobs.md §4): waits for the Start frame, loads the model, says Ready,
// then serves until the agent says Stop, goes away, or a signal comes. Four threads: this one reads
// frames and turns text into ids, one runs the engine's steps, one writes frames, one loads
// adapters; a load holds up nobody. All arguments outlive the call. Returns the process's exit
// code: 0 after an orderly end, kBrokenModel when the model can't be loaded, 1 when the agent
// breaks the protocol (logged in one sentence).
inline constexpr int kBrokenModel = 17;  // as dex-trainer's; no later start would do better
int serve_frames(base::FrameChannel& channel, const base::StopSignals& signals,
                 const base::Clock& clock, base::RandomSource& random);

}  // namespace dex::serve
