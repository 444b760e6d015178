#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "worker/model/config.h"
#include "worker/model/llama.h"
#include "worker/model/weights.h"

namespace dex::testing {

// The family that the test is for, read back from a folder of `shards` files, beside its golden
// values.
class FamilyFixture : public ::testing::TestWithParam<std::string> {
 protected:
  explicit FamilyFixture(size_t shards) : base(dir / "base") {
    write_family(base, GetParam(), family_tensors(golden), shards);
    config = model::load_config(base);
    weights = model::load_weights(base, config, {at::kFloat, true});
  }

  [[nodiscard]] model::Llama llama() const { return {config, weights}; }

  support::TemporaryDirectory dir;
  std::filesystem::path base;
  model::Safetensors golden = family_golden(GetParam());
  model::Config config;
  model::Weights weights;
  model::Batch batch = model::pack(documents_of(golden));
};

}  // namespace dex::testing
