#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/output.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::cli {

// Why a queued job or evaluation does not run yet, to stand behind its state; "": not known.
std::string waiting_text(v1::WaitingReason reason);
// How long ago the worker of a running job was heard of, and for how long it still has the job:
// "3 s ago, lease for 27 s"; "" where none has it. `now_ms`: Unix time of this machine's clock.
std::string heartbeat_text(const v1::FineTuningJob& job, int64_t now_ms);
Table job_table(const std::vector<v1::FineTuningJob>& jobs);
// One job in full, for people: state, progress, figures, where the result is.
Table job_details(const v1::FineTuningJob& job);
// The set fields of a spec with their values and where each comes from; those from DEFAULT are left
// out (--output json has them).
Table value_table(const v1::FineTuningJobSpec& spec,
                  const google::protobuf::Map<std::string, std::string>& sources);
// What create is about to do: the effective values, time, memory, sizes, warnings.
std::string estimate_text(const v1::Estimate& estimate, const Terminal& terminal);

}  // namespace dex::cli
