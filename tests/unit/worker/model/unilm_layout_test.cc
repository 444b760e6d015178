// The way back from DiffLlama's layout to unilm's (method.md §8.2, §10 item 13), on the layers of
// tests/data/model/make_differential.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/support/paths.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "worker/model/differential_attention.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

class UnilmLayoutTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] at::Tensor value(const std::string& name) const {
    return golden_.tensor(GetParam() + "." + name);
  }

  Safetensors golden_ = Safetensors::open(
      (support::source_dir() / "tests/data/model/differential.safetensors").string(),
      Safetensors::Access::kRead);
  nlohmann::json shape_ = nlohmann::json::parse(golden_.metadata().at("cases")).at(GetParam());
  int64_t heads_ = shape_[0], kv_heads_ = shape_[1];
  DifferentialProjections unilm_{value("q"), value("k"), value("v"), value("o")};
};

TEST_P(UnilmLayoutTest, ThereAndBackIsTheSameLayerWithItsGainInTheOutput) {
  const DifferentialProjections hf = from_unilm(unilm_, value("gain"), heads_, kv_heads_);
  EXPECT_FALSE(hf.q.equal(unilm_.q));
  const DifferentialProjections back = to_unilm(hf, heads_, kv_heads_);
  EXPECT_TRUE(back.q.equal(unilm_.q));
  EXPECT_TRUE(back.k.equal(unilm_.k));
  EXPECT_TRUE(back.v.equal(unilm_.v));
  testing::expect_close(back.o, unilm_.o * value("gain").repeat({heads_}), 1e-15);
}

TEST_P(UnilmLayoutTest, BackAndThereIsTheSameLayer) {
  const DifferentialProjections& hf = unilm_;  // any numbers of these shapes
  const DifferentialProjections again =
      from_unilm(to_unilm(hf, heads_, kv_heads_), at::ones_like(value("gain")), heads_, kv_heads_);
  EXPECT_TRUE(again.q.equal(hf.q));
  EXPECT_TRUE(again.k.equal(hf.k));
  EXPECT_TRUE(again.v.equal(hf.v));
  EXPECT_TRUE(again.o.equal(hf.o));
}

INSTANTIATE_TEST_SUITE_P(Cases, UnilmLayoutTest, ::testing::Values("v1", "v1_gqa"),
                         [](const auto& info) { return info.param; });

TEST(ToUnilmTest, MovesRowsAsWritten) {  // method.md §8.2, one pair of heads 4 wide, row by row
  const at::Tensor rows = at::arange(8, at::kDouble).view({8, 1});
  const at::Tensor o = at::ones({1, 8}, at::kDouble);
  const DifferentialProjections back = to_unilm({rows, rows, rows, o}, 1, 1);
  // Channels (c, c + 2) of a DiffLlama head are (2c, 2c + 1) of a unilm head.
  const at::Tensor turned =
      at::tensor({0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0}, at::kDouble).view({8, 1});
  EXPECT_TRUE(back.q.equal(turned));
  EXPECT_TRUE(back.k.equal(turned));
  EXPECT_TRUE(back.v.equal(rows));
}

TEST(ToUnilmTest, RefusesShapesThatDontFit) {
  const at::Tensor q = at::ones({24, 5}), kv = at::ones({12, 5}), o = at::ones({5, 24});
  EXPECT_NO_THROW(to_unilm({q, kv, kv, o}, 2, 1));
  EXPECT_THROW(to_unilm({q, kv, kv, o}, 5, 1), std::runtime_error);
  EXPECT_THROW(to_unilm({kv, kv, kv, o}, 2, 1), std::runtime_error);
  EXPECT_THROW(to_unilm({q, q, kv, o}, 2, 1), std::runtime_error);
  EXPECT_THROW(to_unilm({q, kv, q, o}, 2, 1), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
