// What every method trains on every family, by transformers' own gradients: all weights, k, v and o
// alone, PEFT's LoRA beside all seven linears, and bottleneck adapters hooked into the model
// (tests/data/model/make_families.py). Those of a branch are families_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/family_fixture.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

class FamilyGradientsTest : public testing::FamilyFixture {
 protected:
  FamilyGradientsTest() : FamilyFixture(1) {}

  [[nodiscard]] Adaptation start_of(Train train) const {
    DexOptions options;
    options.form = Form::kNone;
    options.train = train;
    options.lora = {.r = 2, .alpha = 3, .targets = {kLinears.begin(), kLinears.end()}};
    options.adapter = {.size = 3, .activation = AdapterActivation::kRelu};
    return initial_adaptation(options, config, weights, {}, 1);
  }

  static std::vector<Trainable> leaves_of(Adaptation& adaptation) {
    std::vector<Trainable> entries = trainables(adaptation);
    for (const Trainable& entry : entries) entry.tensor->requires_grad_();
    return entries;
  }

  // Every trained tensor's gradient is golden's `prefix` + name.
  void expect_gradients(const std::vector<Trainable>& entries, const std::string& prefix) const {
    for (const Trainable& entry : entries) {
      const std::string key = prefix + entry.name;
      ASSERT_TRUE(golden.has(key)) << key;
      testing::expect_close(entry.tensor->grad(), golden.tensor(key), 1e-3, key.c_str());
    }
  }

  [[nodiscard]] size_t gradients_of(const std::string& prefix) const {
    return static_cast<size_t>(
        std::count_if(golden.tensors().begin(), golden.tensors().end(),
                      [&](const auto& tensor) { return tensor.first.starts_with(prefix); }));
  }

  // Tensors that are added to the base, moved off their start as make_families.py moves its own.
  void expect_added_gradients(Train train, const std::string& method) const {
    Adaptation adaptation = start_of(train);
    std::vector<Trainable> entries = leaves_of(adaptation);
    std::sort(entries.begin(), entries.end(),
              [](const Trainable& a, const Trainable& b) { return a.name < b.name; });
    for (size_t place = 0; place < entries.size(); ++place) {
      at::Tensor& tensor = *entries[place].tensor;
      tensor = testing::family_numbers(4000 + place, tensor.sizes(), 0, 0.4).requires_grad_();
    }
    const at::Tensor loss = testing::next_token_loss(llama(), batch, adaptation);
    testing::expect_close(loss, golden.tensor(method + ".loss"), 1e-5);
    loss.backward();
    expect_gradients(entries, method + ".grad.");
    EXPECT_EQ(entries.size(), gradients_of(method + ".grad."));
  }
};

// method.md §10 item 1 on every attention, bias and norm.
TEST_P(FamilyGradientsTest, TheStartIsTheBaseBitForBit) {
  const at::Tensor base = llama().logits(batch);
  for (const Train train : {Train::kFull, Train::kKvoOnly, Train::kLora, Train::kAdapter})
    EXPECT_TRUE(base.equal(llama().logits(batch, start_of(train)))) << name(train);
}

TEST_P(FamilyGradientsTest, FullTrainsEveryParameterOfTransformers) {
  Adaptation adaptation = start_of(Train::kFull);
  const std::vector<Trainable> entries = leaves_of(adaptation);
  const at::Tensor loss = testing::next_token_loss(llama(), batch, adaptation);
  testing::expect_close(loss, golden.tensor("loss"), 1e-5);
  loss.backward();
  expect_gradients(entries, "grad.");
  EXPECT_EQ(entries.size(), gradients_of("grad."));  // norms, biases and λ's vectors too
}

TEST_P(FamilyGradientsTest, KvoOnlyTrainsThreeProjections) {
  Adaptation adaptation = start_of(Train::kKvoOnly);
  const std::vector<Trainable> entries = leaves_of(adaptation);
  testing::next_token_loss(llama(), batch, adaptation).backward();
  expect_gradients(entries, "grad.");
  const size_t a_layer = 3 + (config.qkv_bias ? 2 : 0) + (config.o_bias ? 1 : 0);
  EXPECT_EQ(entries.size(), static_cast<size_t>(config.layers) * a_layer);
}

TEST_P(FamilyGradientsTest, LoraTrainsAsPeftDoes) {
  expect_added_gradients(Train::kLora, "lora");
}

TEST_P(FamilyGradientsTest, AdaptersTrainAsHookedIn) {
  expect_added_gradients(Train::kAdapter, "adapter");
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGradientsTest,
                         ::testing::ValuesIn(testing::family_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace dex::model
