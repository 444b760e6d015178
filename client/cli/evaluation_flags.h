#pragma once

#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// What `dexctl evaluations create` was given; empty: not given.
struct EvaluationFlags {
  std::string model;
  std::vector<std::string> adapters;  // "ft:…", or "ft:…@0.5" with its dex_lambda_scale
  std::string task, file, shots_file;
  std::vector<std::string> sets;  // "context_length=1024", of the task
  std::string seed, confidence;
  std::vector<std::string> metadata;
  bool against_int8 = false;  // each subject once more, in eight-bit weights
  std::string spec_file;      // an EvaluationSpec in protobuf JSON
};

// The spec: that of the file, with the subjects, the task and the values of the flags added. The
// base comes first, then the adapters, each before its twin in eight bits where these are asked
// for. Files are as they were given, ids or paths. MISSING_FIELD,
// INVALID_FIELD, UNUSED_FIELD.
base::Result<v1::EvaluationSpec> make_evaluation_spec(const EvaluationFlags& flags);

// ft:<base>:<tenant>:<suffix>:<ulid> → <base>.
std::string base_model_of(const std::string& adapter);

// "perplexity, multi_needle, …"
std::string task_names();

}  // namespace dex::cli
