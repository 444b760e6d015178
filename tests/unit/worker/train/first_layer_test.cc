// hyperparameters.first_layer: layers below it stay the base's, in every way of training that
// adapts layer by layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "tests/unit/worker/train/resolved_preset.h"
#include "worker/model/adapter.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;

class FirstLayerTest : public JobTest {
 protected:
  model::Adapter adapter_of(const Published& published) const {
    return model::load_adapter(published.path,
                               {config_, model::base_weights_sha256(directory_ / "model")});
  }
  model::Config config_ = model::load_config(directory_ / "model");
};

class FirstLayerOfMethodTest : public FirstLayerTest,
                               public ::testing::WithParamInterface<model::Train> {};

TEST_P(FirstLayerOfMethodTest, OnlyLayersFromThereOnAreTrainedAndPublished) {
  JobSpec whole = spec("whole"), upper = spec("upper");
  choose(GetParam(), whole);
  choose(GetParam(), upper);
  upper.dex.first_layer = 1;
  RecordingSession unused, session;
  const Published all = run(whole, unused), half = run(upper, session);
  EXPECT_EQ(half.trained_parameters * 2, all.trained_parameters);  // of two layers alike
  EXPECT_EQ(half.base_valid_loss.has_value(), true);
  EXPECT_NE(*half.valid_loss, *half.base_valid_loss);

  const model::Adapter adapter = adapter_of(half);
  EXPECT_EQ(adapter.adaptation.options.first_layer, 1);
  EXPECT_EQ(model::first_changed_layer(adapter.adaptation), 1);
  EXPECT_TRUE(adapter.selected_heads[0].empty());
  EXPECT_EQ(adapter.selected_heads[1].empty(), !upper.dex.has_branch());
  const auto file =
      model::Safetensors::open(std::filesystem::path(half.path) / "adapter_model.safetensors",
                               model::Safetensors::Access::kRead);
  for (const auto& [name, info] : file.tensors())
    EXPECT_EQ(name.find(".layers.0."), name.npos) << name;
}

INSTANTIATE_TEST_SUITE_P(Trains, FirstLayerOfMethodTest,
                         ::testing::Values(model::Train::kKvoDex, model::Train::kDexOnly,
                                           model::Train::kKvoOnly, model::Train::kLoraDex,
                                           model::Train::kLora, model::Train::kAdapter),
                         [](const auto& info) { return test_name(info.param); });

TEST_F(FirstLayerTest, ALayerThatTheModelLacksIsRefusedByNameAndValue) {
  JobSpec spec = this->spec();
  spec.dex.first_layer = 2;
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_EQ(failure.param(), "hyperparameters.first_layer");
  EXPECT_THAT(failure.what(), HasSubstr("must be between 0 and 1, the model's last layer, got 2"));
}

// Heads come and go above it only, and a soft floor is not there below either.
TEST_F(FirstLayerTest, HoldsForHeadsThatAreSelectedAgain) {
  JobSpec spec = resolved_preset("multilingual", tiny_config(), this->spec(), 20);
  spec.hyperparameters.max_steps = 20;
  spec.dex.first_layer = 1;
  spec.dex.soft_floor = 0.2;
  spec.reselect_every = 4;
  RecordingSession session;
  const Published published = run(spec, session);
  const auto selections = session.data("head_selection_complete");
  ASSERT_GT(selections.size(), 1u);
  const auto adapter = adapter_of(published);
  EXPECT_TRUE(adapter.selected_heads[0].empty());
  EXPECT_EQ(adapter.lambda[0], 0);
  EXPECT_EQ(model::first_changed_layer(adapter.adaptation), 1);
}

}  // namespace
}  // namespace dex::train::testing
