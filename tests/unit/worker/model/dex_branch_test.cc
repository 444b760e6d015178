#include "worker/model/dex_branch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/worker/model/models.h"

namespace dex::model {
namespace {

using testing::expect_close;
using testing::tiny_config;

TEST(DexBranchTest, ShapesFollowTheOptions) {
  const Config c = tiny_config();  // H 4, d 6
  DexOptions o;
  const auto shapes = [&] { return branch_shapes(o, c); };
  using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
  EXPECT_EQ(shapes(), (Shapes{{"w_d", {6, 6}}, {"lambda_learn", {1}}}));
  o.form = Form::kHeadMean;
  o.projection = Projection::kPerHead;
  o.lambda.schedule = Schedule::kSeedCosine;
  EXPECT_EQ(shapes(), (Shapes{{"w_d", {4, 6, 6}}, {"gate", {4}}}));
  o.projection = Projection::kBottleneck;
  o.width_ratio = 1.25;  // 7.5 rounds half up
  EXPECT_EQ(shapes(), (Shapes{{"w_down", {4, 6, 8}}, {"w_up", {4, 8, 6}}, {"gate", {4}}}));
  o.bottleneck_scope = BottleneckScope::kShared;
  EXPECT_EQ(shapes()[0].second, (std::vector<int64_t>{6, 8}));
  o.form = Form::kNone;
  EXPECT_TRUE(shapes().empty());
}

TEST(DexBranchTest, StartsAsMethodSays) {
  const Config c = tiny_config();
  DexOptions o;
  o.lambda.learn_init = 0.25;
  EXPECT_EQ(initial_branch(o, c, 0, 1).w_d.abs().max().item<float>(), 0);
  EXPECT_EQ(initial_branch(o, c, 0, 1).lambda_learn.item<float>(), 0.25F);
  o.w_d_init = BranchInit::kLinear;
  const at::Tensor w_d = initial_branch(o, c, 0, 1).w_d;
  const double bound = 1 / std::sqrt(6.0);
  EXPECT_LE(w_d.abs().max().item<double>(), bound);
  EXPECT_GT(w_d.abs().max().item<double>(), 0.8 * bound);
  EXPECT_TRUE(w_d.equal(initial_branch(o, c, 0, 1).w_d));
  EXPECT_FALSE(w_d.equal(initial_branch(o, c, 1, 1).w_d));
  EXPECT_FALSE(w_d.equal(initial_branch(o, c, 0, 2).w_d));
  o.projection = Projection::kBottleneck;
  const BranchTensors bottleneck = initial_branch(o, c, 0, 1);
  EXPECT_GT(bottleneck.w_down.abs().max().item<double>(), 0);
  EXPECT_EQ(bottleneck.w_up.abs().max().item<double>(), 0);
}

// Each form and projection written out head by head from method.md §3.1.
TEST(DexBranchTest, DifferenceIsTheFormula) {
  const Config c = tiny_config();
  const at::Tensor o = testing::random_tensor({5, c.heads, c.head_dim}, 9);
  for (const DexOptions& options : testing::all_options()) {
    const Adaptation a = testing::moved_adaptation(options, c, testing::tiny_weights(c));
    const BranchTensors& b = a.layers[0].branch;
    const at::Tensor found = difference(b, o);
    for (int64_t h = 0; h < c.heads; ++h) {
      const at::Tensor o_h = o.select(1, h);
      const auto own = [&](const at::Tensor& t) { return t.dim() == 3 ? t[h] : t; };
      at::Tensor expected =
          b.w_d.defined() ? o_h.mm(own(b.w_d)) : o_h.mm(own(b.w_down)).mm(own(b.w_up));
      if (options.form == Form::kHeadMean) expected = expected - b.gate[h] * o.mean(1);
      expect_close(found.select(1, h), expected, 1e-5, testing::label(options).c_str());
    }
  }
}

TEST(TrainablesTest, AreTheNamedSetInFlatBufferOrder) {
  const Config c = tiny_config();
  const Weights base = testing::tiny_weights(c);
  const auto names = [&](DexOptions o) {
    Adaptation a = initial_adaptation(o, c, base, testing::some_heads(c), 1);
    std::vector<std::string> list;
    for (const auto& entry : trainables(a)) list.push_back(entry.name);
    return list;
  };
  DexOptions o;
  const auto all = names(o);
  ASSERT_EQ(all.size(), 3U * 3 + 3 + 3);
  EXPECT_EQ(all[0], "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(all[2], "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(all[9], "model.layers.0.self_attn.dex.w_d");
  EXPECT_EQ(all[12], "model.layers.0.self_attn.dex.lambda_learn");
  o.train = Train::kDexOnly;
  EXPECT_EQ(names(o).size(), 6U);
  o.train = Train::kKvoOnly;
  o.form = Form::kNone;
  EXPECT_EQ(names(o).size(), 9U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

}  // namespace
}  // namespace dex::model
