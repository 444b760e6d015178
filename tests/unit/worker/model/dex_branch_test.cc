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
  o.bottleneck_scope = BottleneckScope::kDense;
  EXPECT_EQ(shapes(), (Shapes{{"w_down", {24, 30}}, {"w_up", {30, 24}}, {"gate", {4}}}));
  o.form = Form::kPrefixMean;
  o.projection = Projection::kDense;
  EXPECT_EQ(shapes(), (Shapes{{"w_d", {24, 24}}, {"gate", {4}}}));
  o.form = Form::kUniformMap;  // no P, whatever the projection says
  EXPECT_EQ(shapes(), (Shapes{{"gate", {4}}}));
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

// method.md §3.5: w_d linear, gates 1.
TEST(DexBranchTest, TheLiteralStartActsAtOnce) {
  const Config c = tiny_config();
  DexOptions o = testing::option(Form::kPrefixMean, Projection::kDense);
  o.start = Start::kLiteral;
  const BranchTensors dense = initial_branch(o, c, 0, 1);
  EXPECT_TRUE(dense.gate.equal(at::ones({4})));
  EXPECT_LE(dense.w_d.abs().max().item<double>(), 1 / std::sqrt(24.0));
  EXPECT_GT(dense.w_d.abs().max().item<double>(), 0.8 / std::sqrt(24.0));
  o.projection = Projection::kBottleneck;
  EXPECT_GT(initial_branch(o, c, 0, 1).w_up.abs().max().item<double>(), 0);
  o.form = Form::kUniformMap;
  EXPECT_TRUE(initial_branch(o, c, 0, 1).gate.equal(at::ones({4})));
}

// Each form and projection written out head by head and token by token from method.md §3.1, §3.2.
at::Tensor by_hand(const DexOptions& options, const BranchTensors& b, const at::Tensor& o,
                   const at::Tensor& v, const std::vector<int64_t>& bounds) {
  const int64_t heads = o.size(1), d = o.size(2), per_kv = heads / v.size(1);
  const auto act = [&](const at::Tensor& x) {
    if (options.bottleneck_activation == Activation::kSilu) return x * at::sigmoid(x);
    if (options.bottleneck_activation == Activation::kGelu)
      return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
    return x;
  };
  const bool dense = options.projection == Projection::kDense ||
                     (options.projection == Projection::kBottleneck &&
                      options.bottleneck_scope == BottleneckScope::kDense);
  at::Tensor out = at::zeros_like(o);
  for (size_t document = 0; document + 1 < bounds.size(); ++document) {
    for (int64_t t = bounds[document]; t < bounds[document + 1]; ++t) {
      const auto so_far = [&](const at::Tensor& x) {
        return x.slice(0, bounds[document], t + 1).mean(0);
      };
      for (int64_t h = 0; h < heads; ++h) {
        const auto own = [&](const at::Tensor& w) { return w.dim() == 3 ? w[h] : w; };
        if (options.form == Form::kUniformMap) {
          out[t][h] = b.gate[h] * so_far(v)[h / per_kv];
          continue;
        }
        const at::Tensor row = (dense ? o[t].reshape({-1}) : o[t][h]).unsqueeze(0);
        at::Tensor p =
            b.w_d.defined() ? row.mm(own(b.w_d)) : act(row.mm(own(b.w_down))).mm(own(b.w_up));
        p = dense ? p[0].slice(0, h * d, (h + 1) * d) : p[0];
        if (options.form == Form::kHeadMean) p = p - b.gate[h] * o[t].mean(0);
        if (options.form == Form::kPrefixMean) p = p - b.gate[h] * so_far(o)[h];
        out[t][h] = p;
      }
    }
  }
  return out;
}

class BranchOptionsTest : public ::testing::TestWithParam<DexOptions> {
 protected:
  Config c = tiny_config();
  Adaptation adapted = testing::moved_adaptation(GetParam(), c, testing::tiny_weights(c));
  const BranchTensors& branch = adapted.layers[0].branch;
  at::Tensor o = testing::random_tensor({7, c.heads, c.head_dim}, 9);
  at::Tensor v = testing::random_tensor({7, c.kv_heads, c.head_dim}, 10);
  std::vector<int64_t> bounds{0, 4, 7};
  at::Tensor lambda = at::full({1}, 0.4);

  // concat(O'), through an identity in place of W_O.
  at::Tensor changed(const DexOptions& options, const BranchTensors& b, const at::Tensor& mask) {
    return branched_output(options, b, {o, v, bounds}, at::eye(c.heads * c.head_dim), lambda, mask);
  }
};

TEST_P(BranchOptionsTest, DifferenceIsTheFormula) {
  expect_close(difference(GetParam(), branch, {o, v, bounds}),
               by_hand(GetParam(), branch, o, v, bounds), 1e-5);
}

TEST_P(BranchOptionsTest, TheFusedPathAddsTheScaledDifference) {
  const at::Tensor mask = head_mask({1, 3}, c.heads, 0.25);
  const at::Tensor d = by_hand(GetParam(), branch, o, v, bounds) * mask.view({1, -1, 1});
  expect_close(changed(GetParam(), branch, mask).view(o.sizes()),
               o + d * (0.4 * GetParam().sign_value()), 1e-5);
}

// method.md §10 item 6.
TEST_P(BranchOptionsTest, UnselectedHeadsAreUntouched) {
  const at::Tensor found = changed(GetParam(), branch, head_mask({1, 3}, c.heads)).view(o.sizes());
  for (const int64_t head : {0, 2}) EXPECT_TRUE(found.select(1, head).equal(o.select(1, head)));
  for (const int64_t head : {1, 3}) EXPECT_FALSE(found.select(1, head).equal(o.select(1, head)));
}

// method.md §10 item 8: the same function class, so only the sign of what is last multiplied moves.
TEST_P(BranchOptionsTest, MinusIsPlusOfTheNegatedBranchBitForBit) {
  DexOptions plus = GetParam(), minus = GetParam();
  plus.sign = Sign::kPlus;
  minus.sign = Sign::kMinus;
  BranchTensors negated = branch;
  for (at::Tensor* tensor : {&negated.w_d, &negated.w_up, &negated.gate}) {
    if (tensor->defined()) *tensor = -*tensor;
  }
  const at::Tensor mask = head_mask({0, 3}, c.heads);
  EXPECT_TRUE(changed(minus, branch, mask).equal(changed(plus, negated, mask)));
}

INSTANTIATE_TEST_SUITE_P(Options, BranchOptionsTest, ::testing::ValuesIn(testing::all_options()),
                         [](const auto& info) { return testing::label(info.param); });

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

TEST(TrainablesTest, BeginAtTheFirstLayer) {
  const Config c = tiny_config();
  const Weights base = testing::tiny_weights(c);
  DexOptions o;
  o.first_layer = 2;
  o.soft_floor = 0.2;
  Adaptation a = initial_adaptation(o, c, base, {{}, {}, {0}}, 1);
  std::vector<std::string> names;
  for (const auto& entry : trainables(a)) names.push_back(entry.name);
  const std::string layer = "model.layers.2.self_attn.";
  EXPECT_EQ(names, (std::vector<std::string>{layer + "k_proj.weight", layer + "v_proj.weight",
                                             layer + "o_proj.weight", layer + "dex.w_d",
                                             layer + "dex.lambda_learn"}));
  EXPECT_EQ(a.layers[1].mask.count_nonzero().item<int64_t>(), 0);  // nor a floor
  EXPECT_EQ(a.layers[2].mask.count_nonzero().item<int64_t>(), 4);
  set_lambda(a, 10);
  EXPECT_EQ(lambda_values(a)[1], 0);
  EXPECT_EQ(first_changed_layer(a), 2);
  EXPECT_EQ(first_changed_layer({}), 0);
}

// Also without first_layer: tensors that nothing reads change nothing.
TEST(FirstChangedLayerTest, IsThatOfTheLowestSelectedHead) {
  const Config c = tiny_config();
  const Weights base = testing::tiny_weights(c);
  DexOptions o;
  o.train = Train::kDexOnly;
  EXPECT_EQ(first_changed_layer(initial_adaptation(o, c, base, {{}, {3}, {0}}, 1)), 1);
  EXPECT_EQ(first_changed_layer(initial_adaptation(o, c, base, {{}, {}, {}}, 1)), 3);
  o.train = Train::kKvoDex;
  EXPECT_EQ(first_changed_layer(initial_adaptation(o, c, base, {{}, {3}, {0}}, 1)), 0);
}

}  // namespace
}  // namespace dex::model
