#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "scheduler/core/resolve.h"
#include "tests/unit/scheduler/core/smollm2.h"

namespace dex::core {

// A job on SmolLM2 whose preset is all that it says, and what becomes of jobs.
inline ResolveInput input(std::string_view preset = "code") {
  ResolveInput in;
  in.spec.set_model("smollm2-135m-instruct");
  in.spec.set_training_file("file-1");
  in.spec.mutable_dex()->set_preset(std::string(preset));
  in.spec.mutable_hyperparameters()->set_max_steps(180);
  in.model = smollm2();
  in.training = {v1::FILE_FORMAT_TEXT, 400, 1'000'000, 20'000};
  in.seed = 7;
  return in;
}

inline Resolved resolved(const ResolveInput& in) {
  auto result = resolve(in);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.value();
}

inline base::Status refused(const ResolveInput& in) {
  const auto result = resolve(in);
  EXPECT_FALSE(result.ok());
  return result.status();
}

}  // namespace dex::core
