#pragma once

#include "services/base/clock.h"
#include "services/base/file_layer.h"
#include "worker/train/report.h"
#include "worker/train/spec.h"

namespace dex::train {

// One attempt from first to last phase (api.md §3): load, validate, select heads, train, export,
// verify; with heads_only no further than the heads, with probe_only than one update, with hold
// than that and then Stopped as by a pause. Reports to the session all along, but not the end: that
// is the caller's, which also turns exceptions into an ending. Throws Failure (Stopped on request)
// and std::exception for faults nobody foresaw.
Published run_job(const JobSpec& spec, Session& session, const base::Clock& clock,
                  base::FileLayer& files = base::system_files());

// How an exception ends an attempt: Failure says it itself; an allocation that failed is
// out_of_memory (run_job makes an OutOfMemoryFailure of it); the rest is a fault of ours that may
// pass on another try.
Ending ending_of(const std::exception& error);

}  // namespace dex::train
