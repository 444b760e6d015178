// Two tiny Llamas against transformers (tests/data/model, with the script that made the values):
// logits, loss and gradients of the base, and with a branch that the script computes by its own
// code.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/models.h"

namespace dex::model {
namespace {

using testing::expect_close;

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path dir = support::source_dir() / "tests/data/model" / GetParam();
  Config config = load_config(dir);
  Weights weights = load_weights(dir, config, {at::kFloat, true});
  Llama llama{config, weights};
  Safetensors golden = Safetensors::open(dir / "golden.safetensors", Safetensors::Access::kRead);
  Batch batch = pack(testing::documents_of(golden));

  at::Tensor loss(const Adaptation& adaptation) {
    return testing::next_token_loss(llama, batch, adaptation);
  }

  void expect_trained_gradients(Adaptation& adaptation, const std::string& prefix) {
    for (const Trainable& entry : trainables(adaptation)) {
      if (entry.group != Group::kBase) continue;
      // transformers shows the bias of a frozen-by-softmax key as noise around 0: compare by the
      // largest weight's.
      const std::string key = prefix + "grad." + entry.name;
      ASSERT_TRUE(golden.has(key)) << key;
      if (entry.name.ends_with("k_proj.bias")) {
        EXPECT_LT((entry.tensor->grad() - golden.tensor(key)).abs().max().item<double>(), 1e-6)
            << key;
      } else {
        expect_close(entry.tensor->grad(), golden.tensor(key), 1e-4, key.c_str());
      }
    }
  }
};

TEST_P(GoldenTest, BaseGivesTheSameLogits) {
  const at::Tensor found = llama.logits(batch), expected = golden.tensor("logits");
  EXPECT_LT((found - expected).abs().max().item<double>(), 1e-5);
}

TEST_P(GoldenTest, TrainingKvoGivesTheSameLossAndGradients) {
  DexOptions options;
  options.train = Train::kKvoOnly;
  options.form = Form::kNone;
  Adaptation adaptation = initial_adaptation(options, config, weights, {{}, {}, {}}, 1);
  for (const auto& entry : trainables(adaptation)) entry.tensor->requires_grad_();
  const at::Tensor found = loss(adaptation);
  expect_close(found, golden.tensor("loss"), 1e-6);
  found.backward();
  expect_trained_gradients(adaptation, "");
}

TEST_P(GoldenTest, BranchesGiveTheSameLogitsAndGradients) {
  for (const Form form : {Form::kPaper, Form::kHeadMean}) {
    DexOptions options;
    options.form = form;
    options.projection = form == Form::kPaper ? Projection::kShared : Projection::kPerHead;
    options.sign = form == Form::kPaper ? Sign::kMinus : Sign::kPlus;
    options.lambda.schedule = Schedule::kLearned;
    Adaptation adaptation =
        initial_adaptation(options, config, weights, {{1, 3}, {0}, {0, 1, 2, 3}}, 1);
    const std::string prefix = std::string(name(form)) + ".";
    for (size_t i = 0; i < adaptation.layers.size(); ++i) {
      LayerAdaptation& layer = adaptation.layers[i];
      const std::string here = prefix + std::to_string(i) + ".";
      layer.branch.w_d = golden.tensor(here + "w_d").clone();
      layer.branch.lambda_learn = golden.tensor(here + "strength").reshape({1}).clone();
      if (form == Form::kHeadMean) layer.branch.gate = golden.tensor(here + "gate").clone();
      EXPECT_TRUE(layer.mask.equal(golden.tensor(here + "mask")));
    }
    EXPECT_LT((llama.logits(batch, adaptation) - golden.tensor(prefix + "logits"))
                  .abs()
                  .max()
                  .item<double>(),
              1e-5);
    for (const auto& entry : trainables(adaptation)) entry.tensor->requires_grad_();
    const at::Tensor found = loss(adaptation);
    expect_close(found, golden.tensor(prefix + "loss"), 1e-6);
    found.backward();
    expect_trained_gradients(adaptation, prefix);
    for (size_t i = 0; i < adaptation.layers.size(); ++i) {
      const BranchTensors& branch = adaptation.layers[i].branch;
      const std::string here = prefix + std::to_string(i) + ".grad.";
      expect_close(branch.w_d.grad(), golden.tensor(here + "w_d"), 1e-4, here.c_str());
      expect_close(branch.lambda_learn.grad().squeeze(), golden.tensor(here + "strength"), 1e-4,
                   here.c_str());
      if (form == Form::kHeadMean)
        expect_close(branch.gate.grad(), golden.tensor(here + "gate"), 1e-4, here.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::Values("tied", "biased"));

}  // namespace
}  // namespace dex::model
