// Maps with entries below 0 (method.md §4.1, §4.3, §4.5): by hand, and on whole models against what
// their layers put out, which another path computes.
#include "worker/evaluate/signed_maps.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/evaluate/loss_curvature.h"
#include "worker/evaluate/map_distance.h"
#include "worker/evaluate/map_sparsity.h"
#include "worker/model/differential_attention.h"

namespace dex::evaluate {
namespace {

using at::Tensor;

// [H, T, T], the blocks put together.
Tensor whole_maps(const Tensor& q, const Tensor& k, int64_t window, const SignedMaps& how,
                  int64_t block_entries = kBlockEntries) {
  Tensor out;
  for_each_map_rows(
      q, k, window, how,
      [&](const AttentionRows& rows) {
        if (!out.defined())
          out = at::zeros({rows.maps.size(0), q.size(0), q.size(0)}, rows.maps.options());
        const int64_t next = rows.first + rows.maps.size(1);
        out.slice(1, rows.first, next).slice(2, 0, next).copy_(rows.maps);
      },
      block_entries);
  return out;
}

// Σ −p·ln p of |M|/Σ|M| of each row, [T, H].
Tensor plain_entropy(const Tensor& maps) {
  const Tensor p = maps.to(at::kDouble).abs() / maps.to(at::kDouble).abs().sum(-1, true);
  return -(p * p.clamp_min(1e-300).log()).sum(-1).t();
}

// Weights (1), (¼, ¾), (⅛, ⅜, ½) of two heads, from the first of which 0.6/(i+1) is taken: rows
// (0.4), (−0.05, 0.45), (−0.075, 0.175, 0.3).
class UniformMapByHandTest : public ::testing::Test {
 protected:
  Tensor q = at::ones({3, 2, 1}, at::kDouble);
  Tensor k = at::tensor({1.0, 3.0, 4.0}).log().view({3, 1, 1});
  SignedMaps how{.uniform = at::tensor({-0.6, 0.0})};
};

TEST_F(UniformMapByHandTest, TakesTheSameFromEveryTokenOfARow) {
  const Tensor wanted = at::tensor({0.4, 0., 0., -0.05, 0.45, 0., -0.075, 0.175, 0.3,  //
                                    1., 0., 0., 0.25, 0.75, 0., 0.125, 0.375, 0.5})
                            .view({2, 3, 3});
  for (const int64_t entries : {1, 1 << 20}) {
    const Tensor found = whole_maps(q, k, 0, how, entries);
    EXPECT_LE((found - wanted).abs().max().item<double>(), 1e-12);
  }
}

TEST_F(UniformMapByHandTest, HasItsNegativeMassSparsityAndDistance) {
  MapSparsity sparsity(1, 2, 0.1);
  MapDistance distance(1, 2);
  for_each_map_rows(q, k, 0, how, [&](const AttentionRows& rows) {
    sparsity.add(0, rows);
    distance.add(rows);
  });
  distance.close(0);
  const auto found = sparsity.result();
  EXPECT_NEAR(found.negative_share[0][0], 2.0 / 6, 1e-12);
  EXPECT_NEAR(found.negative_mass[0][0], 0.125 / 1.45, 1e-12);
  EXPECT_NEAR(found.sparsity[0][0], 2.0 / 6, 1e-12);
  EXPECT_EQ(found.negative_share[0][1], 0);
  EXPECT_EQ(found.negative_mass[0][1], 0);
  EXPECT_NEAR(distance.result().mean[0], 0.067748, 5e-7);
}

// A window hides the first token from the last row's softmax, not from the mean of the values:
// (−0.2, 3/7 − 0.2, 4/7 − 0.2), six entries; a head without a branch has five.
TEST_F(UniformMapByHandTest, ReachesBeyondAWindow) {
  const Tensor last = whole_maps(q, k, 2, how)[0][2];
  for (const auto& [j, weight] :
       std::vector<std::pair<int64_t, double>>{{0, -0.2}, {1, 3.0 / 7 - 0.2}, {2, 4.0 / 7 - 0.2}})
    EXPECT_NEAR(last[j].item<double>(), weight, 1e-12);
  MapSparsity sparsity(1, 2, 0.1);
  for_each_map_rows(q, k, 2, how, [&](const AttentionRows& rows) { sparsity.add(0, rows); });
  EXPECT_NEAR(sparsity.result().negative_share[0][0], 2.0 / 6, 1e-12);
  EXPECT_NEAR(sparsity.result().sparsity[0][0], 1.0 / 6, 1e-12);  // −0.05
  EXPECT_EQ(sparsity.result().sparsity[0][1], 0);                 // of 5 entries
}

TEST_F(UniformMapByHandTest, HasTheEntropyOfItsMagnitudes) {
  const Tensor found = magnitude_entropy(q, k, 0, how, 1);
  EXPECT_NEAR(found[0][0].item<double>(), 0, 1e-12);
  EXPECT_NEAR(found[1][0].item<double>(), 0.325083, 5e-7);
  EXPECT_NEAR(found[2][0].item<double>(), 0.966675, 5e-7);
  EXPECT_LE((found.select(1, 1) - row_entropy(q, k, 0).select(1, 1)).abs().max().item<double>(),
            1e-12);  // a head without a branch keeps its own
  // A row that its second map takes away whole has no weight and no entropy.
  const SignedMaps equal{.share = at::ones({1, 1}, at::kDouble),
                         .attention = model::Attention::kDiffLlama};
  EXPECT_EQ(magnitude_entropy(q, k, 0, equal).abs().max().item<double>(), 0);
}

TEST(UniformWeightsTest, AreSignLambdaMaskAndGate) {
  model::Adaptation adaptation;
  adaptation.options.form = model::Form::kUniformMap;
  adaptation.layers.resize(2);
  adaptation.layers[0].mask = at::tensor({1.0F, 0.0F, 0.25F});
  adaptation.layers[0].branch.gate = at::tensor({2.0F, 3.0F, 4.0F});
  adaptation.layers[0].lambda = {.fixed = 0.5};
  const Tensor found = uniform_weights(adaptation, 0);
  EXPECT_TRUE(found.equal(at::tensor({-1.0, 0.0, -0.5})));
  adaptation.options.sign = model::Sign::kPlus;
  EXPECT_TRUE(uniform_weights(adaptation, 0).equal(-found));
  EXPECT_FALSE(uniform_weights(adaptation, 1).defined());  // no branch in this layer
  adaptation.options.form = model::Form::kPrefixMean;
  EXPECT_FALSE(uniform_weights(adaptation, 0).defined());  // no map of tokens that it would change
  EXPECT_FALSE(uniform_weights({}, 0).defined());
}

std::vector<int32_t> ids_of(int64_t count, int64_t vocabulary) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<int32_t>((i * i * 7 + i * 3 + 5) % vocabulary));
  return out;
}

// What a layer shows of its attention.
struct SeenLayer {
  Tensor q, k, o;
  SignedMaps how;
};

std::vector<SeenLayer> seen_layers(const model::Llama& llama, const model::Adaptation& adaptation,
                                   const std::vector<int32_t>& ids) {
  const at::NoGradGuard no_grad;
  std::vector<SeenLayer> out(static_cast<size_t>(llama.config().layers));
  model::Observer observer;
  observer.on_second_map = [&](int64_t layer, const Tensor& share) {
    out[static_cast<size_t>(layer)].how.share = share;
  };
  observer.on_heads = [&](int64_t layer, const Tensor& q, const Tensor& k, const Tensor& o) {
    SeenLayer& seen = out[static_cast<size_t>(layer)];
    seen = {q, k, o, {.share = seen.how.share, .attention = llama.config().attention}};
  };
  llama.hidden(model::pack({{ids.begin(), ids.end()}}), adaptation, observer);
  return out;
}

// The tiny model with an adapter of form uniform_map: signed maps of heads 1, 2 in layer 0, 3 in
// layer 1.
class UniformMapModelTest : public ::testing::Test {
 protected:
  UniformMapModelTest() {
    at::set_num_threads(1);
    model::DexOptions options;
    options.form = model::Form::kUniformMap;
    options.lambda.schedule = model::Schedule::kConstant;
    options.lambda.value = 0.8;
    adaptation = model::initial_adaptation(options, config, weights, {{1, 2}, {3}}, 4);
    model::set_lambda(adaptation, 9);
    for (auto& layer : adaptation.layers) layer.branch.gate = at::tensor({.3F, 1.2F, .9F, 1.5F});
  }

  // M of every layer by the formula.
  std::vector<Tensor> maps() const {
    std::vector<Tensor> out;
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor uniform =
        at::ones({length, length}).tril() / at::arange(1, length + 1, at::kFloat).unsqueeze(1);
    for (const SeenLayer& seen : seen_layers(llama, adaptation, ids)) {
      const model::LayerAdaptation& from = adaptation.layers[out.size()];
      const Tensor a = whole_maps(seen.q, seen.k, 0, {});
      out.push_back(a - 0.8 * (from.mask * from.branch.gate).view({-1, 1, 1}) * uniform);
    }
    return out;
  }

  model::Config config = train::testing::tiny_config();
  model::Weights weights = train::testing::tiny_weights(config);
  model::Llama llama{config, weights};
  model::Adaptation adaptation;
  std::vector<int32_t> ids = ids_of(40, 97);
  std::vector<float> ones = std::vector<float>(40, 1.0F);
  std::vector<Document> documents = {{ids, ones}};
};

TEST_F(UniformMapModelTest, StructureIsThatOfTheSignedMaps) {
  const auto found = measure_head_structure(llama, adaptation, documents, {.skip_rows = 5});
  const std::vector<Tensor> signed_maps = maps();
  double negative = 0;
  for (size_t l = 0; l < signed_maps.size(); ++l) {
    const Tensor map = signed_maps[l].to(at::kDouble);
    for (size_t h = 0; h < 4; ++h) {
      const Tensor own = map[static_cast<int64_t>(h)];
      const double below = own.lt(0).sum().item<double>() / (40 * 41 / 2),
                   mass = (-own.clamp_max(0).sum() / own.abs().sum()).item<double>();
      EXPECT_NEAR(found.sparsity->negative_share[l][h], below, 1e-9);
      EXPECT_NEAR(found.sparsity->negative_mass[l][h], mass, 1e-5);
      negative += mass;
      for (size_t g = 0; g < 4; ++g) {
        if (g == h) continue;
        const Tensor other = map[static_cast<int64_t>(g)].slice(0, 5), self = own.slice(0, 5);
        const double cosine = ((self * other).sum() / (self.norm() * other.norm())).item<double>();
        EXPECT_NEAR(found.cosine->pairs[l][h][g], 1 - cosine, 1e-5);
      }
    }
  }
  EXPECT_GT(negative, 0.1);
  EXPECT_EQ(found.sparsity->negative_mass[0][0], 0);  // not selected
  EXPECT_FALSE(found.removed.has_value());
}

TEST_F(UniformMapModelTest, EntropyIsThatOfTheMagnitudesWhereItIsAskedFor) {
  kernels::LinearCrossEntropy cross_entropy;
  const auto plain = measure_heads(llama, adaptation, documents,
                                   {.skip_rows = 8, .importance = false}, cross_entropy);
  const auto found =
      measure_heads(llama, adaptation, documents,
                    {.skip_rows = 8, .importance = false, .signed_entropy = true}, cross_entropy);
  EXPECT_FALSE(plain.entropy_of_magnitudes);
  EXPECT_TRUE(found.entropy_of_magnitudes);
  EXPECT_STREQ(entropy_of(true), "|M| renormalised");
  EXPECT_STREQ(entropy_of(false), "A");
  const std::vector<Tensor> signed_maps = maps();
  const Tensor limit = at::arange(9, 41, at::kDouble).log().unsqueeze(1);
  for (size_t l = 0; l < signed_maps.size(); ++l) {
    const Tensor rows = plain_entropy(signed_maps[l]).slice(0, 8);
    const Tensor nats = rows.mean(0), normalized = (rows / limit).mean(0);
    for (size_t h = 0; h < 4; ++h) {
      const auto head = static_cast<int64_t>(h);
      EXPECT_NEAR(found.entropy_nats[l][h], nats[head].item<double>(), 1e-5);
      EXPECT_NEAR(found.entropy_normalized[l][h], normalized[head].item<double>(), 1e-5);
    }
  }
  EXPECT_GT(std::abs(found.entropy_nats[0][1] - plain.entropy_nats[0][1]), 1e-3);
  EXPECT_NEAR(found.entropy_nats[0][0], plain.entropy_nats[0][0], 1e-5);  // not selected
}

// Without a branch that acts, nothing is signed and nothing is labelled.
TEST_F(UniformMapModelTest, AZeroBranchIsTheBase) {
  for (auto& layer : adaptation.layers) layer.branch.gate.zero_();
  kernels::LinearCrossEntropy cross_entropy;
  const auto found =
      measure_heads(llama, adaptation, documents,
                    {.skip_rows = 8, .importance = false, .signed_entropy = true}, cross_entropy);
  EXPECT_FALSE(found.entropy_of_magnitudes);
  EXPECT_EQ(measure_head_structure(llama, adaptation, documents, {}).sparsity->negative_mass[0][1],
            0);
}

// Models that subtract one map from another: DiffLlama's layout and both of method diff.
class TwoMapsTest : public ::testing::Test {
 protected:
  TwoMapsTest() { at::set_num_threads(1); }

  struct Subject {
    model::Config config;
    model::Weights weights;
  };
  static std::vector<Subject> subjects() {
    std::vector<Subject> out;
    const support::TemporaryDirectory dir;
    for (const std::string& family : dex::testing::differential_family_names()) {
      const auto folder = dir / family;
      dex::testing::write_family(folder, family,
                                 dex::testing::family_tensors(dex::testing::family_golden(family)));
      const model::Config config = model::load_config(folder);
      out.push_back({config, model::load_weights(folder, config, {at::kFloat})});
    }
    for (const auto& which : dex::testing::second_map_cases()) {
      const auto folder = dir / which.name();
      dex::testing::write_family(
          folder, which.family,
          dex::testing::family_tensors(dex::testing::family_golden(which.family)));
      auto made = dex::testing::second_map_model(folder, which);
      out.push_back({made.config, made.weights});
    }
    return out;
  }

  static model::Weights in_double(model::Weights weights) {
    for (model::LayerWeights& layer : weights.layers) {
      for (const auto& [name, tensor] : model::layer_places(layer)) {
        if (tensor->defined()) *tensor = tensor->to(at::kDouble);
      }
    }
    for (Tensor* each : {&weights.embed, &weights.norm, &weights.lm_head})
      *each = each->to(at::kDouble);
    return weights;
  }

  // Values [T, K, d] of the first layer, whose input is the embedding.
  static Tensor first_values(const Subject& of, const std::vector<int32_t>& ids) {
    const model::LayerWeights& w = of.weights.layers[0];
    const std::vector<int64_t> places(ids.begin(), ids.end());
    Tensor x = of.weights.embed.index_select(0, at::tensor(places));
    x = x * at::rsqrt(x.pow(2).mean(-1, true) + of.config.rms_norm_eps) * w.input_norm;
    Tensor v = x.mm(w.v.t());
    if (w.v_bias.defined()) v = v + w.v_bias;
    return v.view({v.size(0), of.config.kv_heads, of.config.head_dim});
  }

  // M·V of every head as its layer puts it out, [T, h, width].
  static Tensor mixed(const Subject& of, const Tensor& maps, const Tensor& v) {
    std::vector<Tensor> out;
    const bool wide = of.config.attention == model::Attention::kDiffLlama;
    const int64_t key_heads = wide ? of.config.kv_heads / 2 : of.config.kv_heads;
    for (int64_t h = 0; h < maps.size(0); ++h) {
      const int64_t key = h / (maps.size(0) / key_heads);
      const Tensor values =
          wide ? at::cat({v.select(1, key), v.select(1, key + key_heads)}, -1) : v.select(1, key);
      Tensor o = maps[h].mm(values);
      if (wide) {
        o = o * at::rsqrt(o.pow(2).mean(-1, true) + of.config.rms_norm_eps) *
            (1 - model::lambda_init(0));
      }
      out.push_back(o);
    }
    return at::stack(out, 1);
  }
};

TEST_F(TwoMapsTest, TheirMapTimesTheValuesIsWhatTheLayerPutsOut) {
  int negative = 0;
  for (const Subject& subject : subjects()) {
    const auto ids = ids_of(30, subject.config.vocab_size);
    const model::Llama llama(subject.config, subject.weights);
    const SeenLayer seen = seen_layers(llama, {}, ids)[0];
    const Tensor v = first_values(subject, ids);
    for (const int64_t entries : {1, 1 << 20}) {
      const Tensor maps =
          whole_maps(seen.q, seen.k, subject.config.sliding_window, seen.how, entries);
      EXPECT_EQ(maps.size(0), subject.config.output_heads()) << subject.config.kind();
      if (seen.how.share.min().item<double>() > 0) {
        EXPECT_LT(maps.min().item<double>(), 0) << subject.config.kind();
        ++negative;
      }
      const Tensor error = (mixed(subject, maps, v) - seen.o).abs();
      EXPECT_LE(error.max().item<double>(), 2e-5) << subject.config.kind();
    }
  }
  EXPECT_GT(negative, 10) << "of 20 looks: a random λ of V1 may be below 0";
}

TEST_F(TwoMapsTest, EveryMeasureIsThatOfTheSignedMaps) {
  for (const Subject& subject : subjects()) {
    const std::string kind = subject.config.kind();
    const auto ids = ids_of(30, subject.config.vocab_size);
    const std::vector<float> ones(ids.size(), 1.0F);
    const std::vector<Document> documents = {{ids, ones}};
    const model::Llama llama(subject.config, subject.weights);
    const auto heads = static_cast<size_t>(subject.config.output_heads());
    kernels::LinearCrossEntropy cross_entropy;
    const auto scores = measure_heads(llama, {}, documents, {.skip_rows = 4}, cross_entropy);
    const auto structure = measure_head_structure(llama, {}, documents, {.skip_rows = 4});
    EXPECT_TRUE(scores.entropy_of_magnitudes) << kind;
    const auto layers = seen_layers(llama, {}, ids);
    for (size_t l = 0; l < layers.size(); ++l) {
      const SeenLayer& seen = layers[l];
      const Tensor maps = whole_maps(seen.q, seen.k, subject.config.sliding_window, seen.how);
      const Tensor entropy = plain_entropy(maps).slice(0, 4).mean(0);
      ASSERT_EQ(scores.entropy_nats[l].size(), heads);
      ASSERT_EQ(structure.cka->unbiased_pairs[l].size(), heads);
      for (size_t h = 0; h < heads; ++h) {
        const Tensor own = maps[static_cast<int64_t>(h)].to(at::kDouble);
        EXPECT_NEAR(scores.entropy_nats[l][h], entropy[static_cast<int64_t>(h)].item<double>(),
                    2e-5)
            << kind;
        EXPECT_NEAR(structure.sparsity->negative_mass[l][h],
                    (-own.clamp_max(0).sum() / own.abs().sum()).item<double>(), 1e-5)
            << kind;
        EXPECT_GE(structure.cosine->pairs[l][0][h], 0);
        EXPECT_LE(structure.cosine->pairs[l][0][h], 2);
      }
      const Tensor first = maps[0].slice(0, 4), last = maps[-1].slice(0, 4);
      EXPECT_NEAR(structure.cosine->pairs[l][0][heads - 1],
                  1 - ((first * last).sum() / (first.norm() * last.norm())).item<double>(), 1e-4)
          << kind;
    }
  }
}

// The gate is on what o_proj reads: scaling head h by 1 ± ε is scaling its columns of W_O.
TEST_F(TwoMapsTest, ImportanceEqualsFiniteDifferencesOfTheGate) {
  for (const Subject& subject : subjects()) {
    const auto ids = ids_of(24, subject.config.vocab_size);
    const std::vector<float> ones(ids.size(), 1.0F);
    const std::vector<Document> documents = {{ids, ones}};
    kernels::LinearCrossEntropy cross_entropy;
    const auto scores = measure_heads(model::Llama(subject.config, subject.weights), {}, documents,
                                      {.entropy = false}, cross_entropy);
    const int64_t width = subject.config.output_width();
    const auto loss = [&, exact = in_double(subject.weights)](int64_t head, double factor) {
      model::Weights scaled = exact;
      scaled.layers[1].o = scaled.layers[1].o.clone();
      scaled.layers[1].o.slice(1, head * width, (head + 1) * width).mul_(factor);
      const auto batch = supervise(documents);
      const Tensor rows =
          model::Llama(subject.config, scaled).logits(batch.batch).log_softmax(-1).slice(0, 0, -1);
      return -rows.gather(1, batch.targets.slice(0, 0, -1).unsqueeze(1)).mean().item<double>();
    };
    for (const int64_t head : {int64_t{0}, subject.config.output_heads() - 1}) {
      const double epsilon = 1e-4;
      const double numeric =
          std::abs(loss(head, 1 + epsilon) - loss(head, 1 - epsilon)) / (2 * epsilon);
      EXPECT_NEAR(scores.importance[1][static_cast<size_t>(head)], numeric, 1e-3 * numeric + 5e-5)
          << subject.config.kind() << " " << head;
    }
  }
}

// Nothing of it needs single maps: the loss over K, V and O has its curvature as elsewhere.
TEST_F(TwoMapsTest, TheLossHasItsCurvature) {
  const Subject subject = subjects()[0];
  const auto ids = ids_of(16, subject.config.vocab_size);
  const std::vector<float> ones(ids.size(), 1.0F);
  const std::vector<Document> documents = {{ids, ones}};
  kernels::LinearCrossEntropy cross_entropy;
  const auto found = measure_loss_curvature(model::Llama(subject.config, subject.weights),
                                            subject.weights, {}, documents, cross_entropy);
  ASSERT_EQ(found.documents.size(), 1U);
  EXPECT_TRUE(std::isfinite(found.documents[0].value));
  EXPECT_NE(found.documents[0].value, 0);
  EXPECT_EQ(not_settled(found), found.documents[0].converged ? 0 : 1);
}

}  // namespace
}  // namespace dex::evaluate
