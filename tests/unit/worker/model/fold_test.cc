#include "worker/model/fold.h"
#include "tests/support/paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/llama.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

using testing::expect_close;

const std::vector<int64_t> kTokens{3, 14, 15, 9, 26, 5, 35, 8, 57, 1, 42};

class FoldTest : public ::testing::TestWithParam<DexOptions> {
 protected:
  Config config = testing::tiny_config();
};

TEST_P(FoldTest, IsTheFullMapOfTheBranch) {
  const Weights base = testing::tiny_weights(config, at::kDouble);
  const Adaptation adapted = testing::moved_adaptation(GetParam(), config, base);
  for (const LayerAdaptation& layer : adapted.layers) {
    const at::Tensor w_o = layer.o.to(at::kDouble);
    expect_close(folded_o_proj(w_o, layer, GetParam()),
                 w_o.mm(full_map(layer, GetParam(), config).t()), 1e-12);
  }
}

// method.md §2.4: ≤ 1e-10 in fp64 on a toy model, ≤ 1e-4 in fp32.
TEST_P(FoldTest, FoldedModelIsTheBranch) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Weights base = testing::tiny_weights(config, type);
    Adaptation adapted = testing::moved_adaptation(GetParam(), config, base);
    for (LayerAdaptation& layer : adapted.layers) {
      for (at::Tensor* t :
           {&layer.k, &layer.v, &layer.o, &layer.mask, &layer.branch.w_d, &layer.branch.w_down,
            &layer.branch.w_up, &layer.branch.gate, &layer.branch.lambda_learn}) {
        if (t->defined()) *t = t->to(type);
      }
    }
    const Weights folded = folded_weights(base, adapted);
    const Batch batch = pack({kTokens});
    const Certificate c = certificate(Llama(config, folded).logits(batch),
                                      Llama(config, base).logits(batch, adapted));
    EXPECT_LE(c.largest, type == at::kDouble ? 1e-10 : 1e-4);
    EXPECT_LE(c.mean, c.largest);
    EXPECT_TRUE(folded.layers[2].o.equal(adapted.layers[2].o));  // no head selected there
  }
}

TEST_P(FoldTest, LambdaScaleZeroIsTheProjectionItself) {
  const Weights base = testing::tiny_weights(config);
  const Adaptation adapted = testing::moved_adaptation(GetParam(), config, base);
  EXPECT_TRUE(folded_o_proj(adapted.layers[0].o, adapted.layers[0], GetParam(), 0)
                  .equal(adapted.layers[0].o));
}

INSTANTIATE_TEST_SUITE_P(Options, FoldTest, ::testing::ValuesIn(testing::foldable_options()),
                         [](const auto& info) { return testing::label(info.param); });

// method.md §3.6: refused by name, with what to do instead.
TEST(FoldRefusalTest, NamesTheFormThatCannotBeFolded) {
  const Config config = testing::tiny_config();
  const Weights base = testing::tiny_weights(config);
  const auto refusal = [](const std::function<void()>& fold) -> std::string {
    try {
      fold();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "folded";
  };
  int refused = 0;
  for (const DexOptions& options : testing::all_options()) {
    if (not_foldable(options).empty()) continue;
    ++refused;
    const Adaptation adapted = testing::moved_adaptation(options, config, base);
    const std::string said = refusal([&] { folded_weights(base, adapted); });
    const std::string expected =
        options.keeps_state()
            ? "[fold] form " + std::string(name(options.form)) +
                  " keeps state between tokens; it can't be folded, serve it as an adapter"
            : "[fold] a bottleneck with activation " +
                  std::string(name(options.bottleneck_activation)) +
                  " is not linear; it can't be folded, serve it as an adapter";
    EXPECT_EQ(said, expected);
    const LayerAdaptation& layer = adapted.layers[0];
    EXPECT_EQ(refusal([&] { folded_o_proj(layer.o, layer, options); }), expected);
    EXPECT_EQ(refusal([&] { full_map(layer, options, config); }), expected);
    const support::TemporaryDirectory dir;
    EXPECT_NE(refusal([&] {
                export_folded(dir / "out", dir / "none", config, adapted, at::kFloat, {});
              }).find("can't be folded"),
              std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  }
  EXPECT_EQ(refused, 12 + 6 + 6 + 1);  // prefix_mean, activated paper and head_mean, uniform_map
}

TEST(CertificateTest, NanIsWithinNoBound) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [largest, within, broken] :
       {std::tuple(1e-4, true, false), std::tuple(1.1e-4, false, false),
        std::tuple(1e-2, false, false), std::tuple(1.1e-2, false, true),
        std::tuple(nan, false, true)}) {
    EXPECT_EQ((Certificate{largest, 0}.within_bound()), within) << largest;
    EXPECT_EQ((Certificate{largest, 0}.broken()), broken) << largest;
  }
}

TEST(ExportFoldedTest, IsAPlainModelOnDisk) {
  const support::TemporaryDirectory dir;
  const std::filesystem::path source = support::source_dir() / "tests/data/model/tied";
  const Config config = load_config(source);
  const Weights base = load_weights(source, config, {at::kFloat, false});
  const Adaptation adapted =
      testing::moved_adaptation(testing::all_options().front(), config, base);
  const Batch batch = pack({kTokens});
  const at::Tensor branch = Llama(config, base).logits(batch, adapted);
  export_folded(dir / "out", source, config, adapted, at::kFloat, {1e-6, 1e-7});

  const Config read = load_config(dir / "out");
  const Weights folded = load_weights(dir / "out", read, {std::nullopt, true});
  EXPECT_LE(certificate(Llama(read, folded).logits(batch), branch).largest, 1e-4);
  // W_Q, MLP, norms, embedding and head are the base's, bit for bit; K, V and O are not.
  const auto was = named_weights(base), is = named_weights(folded);
  ASSERT_EQ(is.size(), was.size());
  for (size_t i = 0; i < was.size(); ++i) {
    ASSERT_EQ(is[i].first, was[i].first);
    EXPECT_EQ(is[i].second.equal(was[i].second),
              !trains_weight(adapted.options.train, was[i].first))
        << was[i].first;
  }
  std::ifstream file(dir / "out" / "fold_certificate.json");
  const auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["largest_logit_difference"], 1e-6);
  EXPECT_EQ(report["within_bound"], true);
  EXPECT_THROW(export_folded(dir / "out", source, config, adapted, at::kFloat, {}),
               std::runtime_error);
}

// An export is a base like any other: what lies beside its weights and says how it was made stays
// behind, and so do the lists of shards that are not there.
TEST(ExportFoldedTest, OfAnExportSaysNothingOfItsOrigin) {
  const support::TemporaryDirectory dir;
  const std::filesystem::path source = support::source_dir() / "tests/data/model/tied";
  const Config config = load_config(source);
  const Weights base = load_weights(source, config, {at::kFloat, false});
  const Adaptation adapted =
      testing::moved_adaptation(testing::all_options().front(), config, base);
  export_folded(dir / "first", source, config, adapted, at::kFloat, {1, 1});
  for (const char* name : {"pytorch_model.bin.index.json", "provenance.json", "checksums.json"})
    std::ofstream(dir / "first" / name) << "{}";
  std::ofstream(dir / "first" / "LICENSE") << "kept";
  export_folded(dir / "second", dir / "first", config, adapted, at::kFloat, {2, 2});

  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "second"))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(found, (std::set<std::string>{"config.json", "model.safetensors", "LICENSE",
                                          "fold_certificate.json"}));
  std::ifstream file(dir / "second" / "fold_certificate.json");
  const auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["largest_logit_difference"], 2);
  EXPECT_EQ(report["within_bound"], false);
}

}  // namespace
}  // namespace dex::model
