#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/running_platform.h"
#include "tests/support/tiny_model.h"

namespace dex::support {

inline std::vector<std::string> with(std::vector<std::string> args,
                                     const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// A real job that ends in well under a minute, also on the real model: a few updates of two short
// rows. Without `validation` the server holds rows out, and at a `max_seq_length` of 0 it chooses
// their length.
inline std::vector<std::string> small_job(const std::string& training,
                                          const std::string& validation, int steps = 6,
                                          const std::string& model = "smollm2-135m-instruct",
                                          int max_seq_length = 128) {
  std::vector<std::string> args = {"jobs",
                                   "create",
                                   "--model",
                                   model,
                                   "--training-file",
                                   training,
                                   "--preset",
                                   "code",
                                   "--max-steps",
                                   std::to_string(steps),
                                   "--batch-size",
                                   "2",
                                   "--seed",
                                   "1",
                                   "--set",
                                   "dex.head_selection.calibration.n_sequences=2",
                                   "--set",
                                   "dex.head_selection.calibration.seq_length=128",
                                   "--set",
                                   "evaluation.max_tokens=384",
                                   "--set",
                                   "evaluation.every_steps=6",
                                   "--set",
                                   "checkpoints.every_steps=2",
                                   "--yes"};
  if (!validation.empty()) args = with(std::move(args), {"--validation-file", validation});
  if (max_seq_length > 0)
    args = with(std::move(args), {"--max-seq-length", std::to_string(max_seq_length)});
  return args;
}

// Three updates of a method other than dex on the tiny model, at a rate that shows.
inline std::vector<std::string> tiny_job(const std::string& file, const std::string& method,
                                         const std::string& rate) {
  return {"jobs",
          "create",
          "--model",
          kTinyModel,
          "--training-file",
          file,
          "--validation-file",
          file,
          "--method",
          method,
          "--max-steps",
          "3",
          "--batch-size",
          "2",
          "--max-seq-length",
          "128",
          "--seed",
          "1",
          "--learning-rate",
          rate,
          "--set",
          "evaluation.max_tokens=384",
          "--yes",
          "--follow"};
}

}  // namespace dex::support
