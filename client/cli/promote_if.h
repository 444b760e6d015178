#pragma once

#include <string>

#include "dex/v1/evaluation_task.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// --promote-if "FIGURE<=NUMBER" (or >=), with or without " against OTHER" behind it, as a gate
// whose other fields are open, so that the server's defaults hold. FIGURE is TASK.METRIC, or for a
// task of EvaluationService
//
//   TASK(FILE, option=value, …).METRIC[dim=value, …]
//
// with its options as `dexctl evaluations create --set` takes them, lists with commas too:
// "multi_needle(book.txt, lengths=1024,2048).accuracy[length=2048]>=-0.05". FILE is a file id or a
// path, as it was given; multi_needle may leave it out: "multi_needle(lengths=1024)", where a word
// and '=' in front are an option, never a file's name (that is written file=…). OTHER is
// base, absolute, an adapter's id, adapter (the one that the job goes on from), or "kvo_only ID" of
// the adapter of the control. INVALID_FIELD, UNKNOWN_FIELD say what is wrong; which metrics there
// are is the server's to say.
base::Result<v1::Gate> parse_gate(const std::string& text);

// --task "TASK(FILE, option=value, …)": a task by itself, written as a gate's is.
base::Result<v1::EvaluationTask> parse_task(const std::string& text);

}  // namespace dex::cli
