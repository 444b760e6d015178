#pragma once

#include <string>
#include <vector>

#include "tests/support/running_platform.h"

namespace dex::support {

// A real job that ends in well under a minute, also on the real model: a few updates of two short
// rows.
inline std::vector<std::string> small_job(const std::string& training,
                                          const std::string& validation, int steps = 6,
                                          const std::string& model = "smollm2-135m-instruct") {
  return {"jobs",
          "create",
          "--model",
          model,
          "--training-file",
          training,
          "--validation-file",
          validation,
          "--preset",
          "code",
          "--max-steps",
          std::to_string(steps),
          "--batch-size",
          "2",
          "--max-seq-length",
          "128",
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
}

inline std::vector<std::string> with(std::vector<std::string> args,
                                     const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace dex::support
