// Weights that are not finite: each door says so with a sentence, none answers with NaN.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/fold.h"
#include "worker/model/safetensors.h"
#include "worker/serve/fold_command.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

class NonFiniteTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }
  NonFiniteTest() { train::testing::write_tiny_model(model_); }

  // Writes the base once more with one weight of NaN.
  void spoil_base() const {
    model::Weights weights = train::testing::tiny_weights(train::testing::tiny_config());
    weights.layers[1].down[3][5] = std::numeric_limits<float>::quiet_NaN();
    std::filesystem::remove(model_ / "model.safetensors");
    model::write_safetensors(model_ / "model.safetensors", model::named_weights(weights));
  }
  // An adapter of the base as it lies there; `scale` is how far its numbers are from their start.
  void write_adapter(double scale) const {
    model::write_adapter(dir_ / "adapter",
                         testing::tiny_adapter(testing::tiny_options()[0], 7,
                                               model::base_weights_sha256(model_), scale));
  }
  std::string folding() const {
    return refusal_of([&] {
      std::ostringstream out;
      fold({model_, dir_ / "adapter", ""}, dir_ / "folded", out);
    });
  }

  support::TemporaryDirectory dir_;
  const std::filesystem::path model_ = dir_ / "model";
  const std::string said_ =
      "model.layers.1.mlp.down_proj.weight: expected finite values, found nan at index 149";
};

TEST_F(NonFiniteTest, ABaseIsNotServed) {
  spoil_base();
  for (const Dtype dtype :
       {Dtype::kAsStored, Dtype::kBf16, Dtype::kF32, Dtype::kInt8, Dtype::kInt4})
    EXPECT_THAT(refusal_of([&] { load_serving_model(model_, dtype); }), HasSubstr(said_));
}

TEST_F(NonFiniteTest, ABaseIsNotFolded) {
  spoil_base();
  write_adapter(0.4);
  EXPECT_THAT(folding(), HasSubstr(said_));
  const model::Config config = model::load_config(model_);
  const auto adapter = testing::tiny_adapter(testing::tiny_options()[0], 7, "");
  EXPECT_THAT(refusal_of([&] {
                model::export_folded(dir_ / "folded", model_, config, adapter.adaptation,
                                     at::kFloat, {});
              }),
              HasSubstr(said_));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "folded"));
}

// Finite numbers, and a product that is not: the certificate is NaN, which is above no limit.
TEST_F(NonFiniteTest, AFoldThatOverflowsIsNotWritten) {
  write_adapter(1e30);
  EXPECT_THAT(folding(), HasSubstr("nan in a logit; nothing was written"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "folded"));
}

}  // namespace
}  // namespace dex::serve
