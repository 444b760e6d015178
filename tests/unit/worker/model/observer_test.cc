#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "tests/unit/worker/model/models.h"
#include "worker/kernels/rope.h"
#include "worker/model/llama.h"
#include "worker/model/rope_frequencies.h"

namespace dex::model {
namespace {

using testing::expect_close;

const std::vector<int64_t> kObserved{3, 14, 15, 9, 26, 5, 35, 8},
    kObservedSecond{57, 1, 42, 11, 30};

class ObserverTest : public ::testing::Test {
 protected:
  Config config = testing::tiny_config();
  Weights weights = testing::tiny_weights(config);
  Llama llama{config, weights};
  Batch batch = pack({kObserved, kObservedSecond});
};

// By the definition, for layer 0 whose input is the embedding.
TEST_F(ObserverTest, HeadsAreSeenAsTheyMeet) {
  at::Tensor q, k;
  Observer observer;
  observer.on_heads = [&](int64_t layer, const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor&) {
    if (layer != 0) return;
    q = queries;
    k = keys;
  };
  llama.hidden(batch, {}, observer);
  ASSERT_EQ(q.sizes(), (at::IntArrayRef{13, config.heads, config.head_dim}));
  ASSERT_EQ(k.sizes(), (at::IntArrayRef{13, config.kv_heads, config.head_dim}));
  const LayerWeights& w = weights.layers[0];
  for (const auto& [document, from] : {std::pair(kObserved, 0), std::pair(kObservedSecond, 8)}) {
    const auto n = static_cast<int64_t>(document.size());
    const Batch alone = pack({document});
    at::Tensor x = weights.embed.index_select(0, alone.tokens);
    x = x * at::rsqrt(x.pow(2).mean(-1, true) + config.rms_norm_eps) * w.input_norm;
    const auto [cos, sin] = kernels::rope_angles(alone.positions, rope_frequencies(config));
    const auto placed = [&, &cos = cos, &sin = sin](const at::Tensor& weight, int64_t heads) {
      return kernels::rope_plain(x.mm(weight.t()).view({n, heads, -1}), cos, sin);
    };
    expect_close(q.slice(0, from, from + n), placed(w.q, config.heads), 1e-5);
    expect_close(k.slice(0, from, from + n), placed(w.k, config.kv_heads), 1e-5);
  }
}

TEST_F(ObserverTest, BranchShowsOutputAndScaledDifference) {
  const DexOptions options = testing::all_options().front();
  const Adaptation adapted = testing::moved_adaptation(options, config, weights);
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> seen;
  Observer observer;
  observer.on_branch = [&](int64_t layer, const at::Tensor& o, const at::Tensor& scaled) {
    seen[layer] = {o, scaled};
  };
  const at::Tensor with = llama.hidden(batch, adapted, observer);
  EXPECT_TRUE(with.equal(llama.hidden(batch, adapted)));  // looking changes nothing
  ASSERT_EQ(seen.size(), 2U);                             // layer 2 has no selected head
  const LayerAdaptation& layer = adapted.layers[0];
  const double lambda = lambda_values(adapted)[0];
  const at::Tensor d = difference(options, layer.branch, {seen[0].first, {}, batch.bounds});
  expect_close(seen[0].second, d * layer.mask.view({1, -1, 1}) * (-lambda), 1e-6);
}

// With gates or an observer the branch is computed in simple ops, else on its fused path: both are
// the same branch.
TEST_F(ObserverTest, TheFusedPathIsTheObservedBranchForEveryOption) {
  Observer observer;
  for (int64_t i = 0; i < config.layers; ++i)
    observer.head_gates.push_back(at::ones({2, config.heads}));
  for (const DexOptions& options : testing::all_options()) {
    const Adaptation adapted = testing::moved_adaptation(options, config, weights);
    expect_close(llama.hidden(batch, adapted), llama.hidden(batch, adapted, observer), 1e-5,
                 testing::label(options).c_str());
  }
}

// ξ = 1 changes nothing; its gradient is the change of the loss with the gate (method.md §4.2, §10
// item 11).
TEST_F(ObserverTest, HeadGatesAreOnTheHeadsOfTheirDocument) {
  const Adaptation adapted =
      testing::moved_adaptation(testing::all_options().front(), config, weights);
  const auto run = [&](const std::vector<at::Tensor>& gates) {
    Observer observer;
    observer.head_gates = gates;
    return llama.hidden(batch, adapted, observer).pow(2).sum();
  };
  std::vector<at::Tensor> gates;
  for (int64_t i = 0; i < config.layers; ++i)
    gates.push_back(at::ones({2, config.heads}).requires_grad_());
  const at::Tensor loss = run(gates);
  expect_close(loss, llama.hidden(batch, adapted).pow(2).sum(), 1e-6);
  loss.backward();
  at::NoGradGuard no_grad;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const auto& [document, head] : {std::pair(0, 1), std::pair(1, 3)}) {
      const auto moved = [&](double by) {
        std::vector<at::Tensor> values;
        for (const auto& gate : gates) values.push_back(gate.detach().clone());
        values[static_cast<size_t>(layer)][document][head] += by;
        return run(values).item<double>();
      };
      const double numeric = (moved(1e-2) - moved(-1e-2)) / 2e-2;
      const double found = gates[static_cast<size_t>(layer)].grad()[document][head].item<double>();
      EXPECT_NEAR(found, numeric, 2e-2 * std::abs(numeric) + 2e-3);
    }
  }
}

}  // namespace
}  // namespace dex::model
