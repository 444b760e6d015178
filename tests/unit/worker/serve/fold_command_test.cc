// `dex-engine fold` says how exact the fold is. That the folded model is the branch is tested where
// folding is (tests/unit/worker/model/fold_test.cc) and against transformers
// (tests/integration/fold).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/safetensors.h"
#include "worker/serve/fold_command.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {
namespace {

// Logits, and what rounding does to them, grow with the weight of the last norm: somewhere on the
// way the difference is above the bound and not yet broken.
TEST(FoldCommandTest, SaysWhenRoundingDoesNotExplainTheDifference) {
  use_one_library_thread();
  const support::TemporaryDirectory dir;
  double largest = 0;
  for (double scale = 1; largest <= 1e-4; scale *= 4) {
    ASSERT_LT(scale, 1e9);
    const auto folder = dir / std::to_string(static_cast<int64_t>(scale));
    train::testing::write_tiny_model(folder / "model");
    model::Weights weights = train::testing::tiny_weights(train::testing::tiny_config());
    weights.norm.mul_(scale);
    std::filesystem::remove(folder / "model" / "model.safetensors");
    model::write_safetensors(folder / "model" / "model.safetensors", model::named_weights(weights));
    model::write_adapter(folder / "adapter",
                         testing::tiny_adapter(testing::tiny_options()[0], 7,
                                               model::base_weights_sha256(folder / "model")));
    std::ostringstream out;
    fold({folder / "model", folder / "adapter", ""}, folder / "folded", out);
    const auto report = nlohmann::json::parse(out.str());
    largest = report.at("largest_logit_difference");
    EXPECT_EQ(report.at("within_bound"), largest <= 1e-4) << scale;
    EXPECT_EQ(report.contains("warning"), largest > 1e-4) << scale;
    std::ifstream file(folder / "folded" / "fold_certificate.json");
    EXPECT_EQ(nlohmann::json::parse(file).at("within_bound"), largest <= 1e-4) << scale;
  }
}

}  // namespace
}  // namespace dex::serve
