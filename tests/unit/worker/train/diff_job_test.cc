// Jobs of method diff (method.md §8.4): from the base's loss to a checkpoint of its own kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/held_out_rows.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/model/llama.h"
#include "worker/model/second_map.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
using Second = model::SecondMapOptions;

struct DiffCase {
  model::Train train;
  Second::Version version;
  Second::Init init;
};

class DiffJobTest : public JobTest, public ::testing::WithParamInterface<DiffCase> {
 protected:
  double loss_of(const std::filesystem::path& folder) {
    const auto config = model::load_config(folder);
    const auto weights = model::load_weights(folder, config, {.dtype = at::kFloat});
    return loss_on_held_out_rows(model::Llama(config, weights), {});
  }
};

TEST_P(DiffJobTest, StartsAtTheBaseAndPublishesAModelOfItsOwnKind) {
  JobSpec spec = this->spec();
  choose(GetParam().train, spec);
  spec.dex.second_map = {GetParam().version, GetParam().init};
  spec.hyperparameters.max_steps = 10;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_NEAR(*published.base_valid_loss, loss_of(directory_ / "model"), 1e-5);
  EXPECT_LT(*published.valid_loss, *published.base_valid_loss);
  EXPECT_EQ(published.method, "diff");
  EXPECT_EQ(published.artifact_class, "MODEL");

  const auto config = model::load_config(published.path);
  EXPECT_EQ(config.attention, GetParam().version == Second::Version::kV1
                                  ? model::Attention::kSecondMapV1
                                  : model::Attention::kSecondMapV2);
  EXPECT_NEAR(loss_of(published.path), *published.valid_loss, 1e-5);
  const auto base = model::load_config(directory_ / "model");
  const int64_t added = config.parameter_count() - base.parameter_count();
  EXPECT_EQ(published.added_parameters, added);
  // L 2, D 32, H 4, K 2, d 8: W_Q2 and W_λ, or W_Q2, W_K2 and four vectors.
  EXPECT_EQ(added, GetParam().version == Second::Version::kV2 ? 2 * (32 * 32 + 4 * 32)
                                                              : 2 * (32 * 32 + 16 * 32 + 4 * 8));
  const int64_t attention = 2 * (2 * 32 * 32 + 2 * 16 * 32);
  EXPECT_EQ(published.trained_parameters, GetParam().train == model::Train::kDiffAll
                                              ? config.parameter_count()
                                              : attention + added);
  EXPECT_EQ(session.data("training_start").at(0).at("addedParameters"), std::to_string(added));

  // What ATTENTION leaves alone is the base's, bit for bit.
  const auto was = model::load_weights(directory_ / "model", base, {.dtype = at::kFloat}),
             now = model::load_weights(published.path, config, {.dtype = at::kFloat});
  EXPECT_EQ(now.layers[1].gate.equal(was.layers[1].gate),
            GetParam().train == model::Train::kDiffAttention);
  EXPECT_FALSE(now.layers[1].v.equal(was.layers[1].v));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DiffJobTest,
    ::testing::Values(
        DiffCase{model::Train::kDiffAttention, Second::Version::kV2, Second::Init::kZero},
        DiffCase{model::Train::kDiffAttention, Second::Version::kV1, Second::Init::kZero},
        DiffCase{model::Train::kDiffAll, Second::Version::kV2, Second::Init::kMirror},
        DiffCase{model::Train::kDiffAll, Second::Version::kV1, Second::Init::kMirror}),
    [](const auto& info) {
      return test_name(info.param.train) + "_" + std::string(model::name(info.param.version));
    });

// A model that has a second map already: no other one, no dex; everything else.
TEST_F(JobTest, AModelOfMethodDiffIsTrainedFurther) {
  JobSpec first = this->spec("first");
  choose(model::Train::kDiffAttention, first);
  RecordingSession session;
  const Published made = run(first, session);
  JobSpec second = this->spec("second");
  second.model_dir = made.path;
  second.base_weights_sha256.clear();
  choose(model::Train::kDiffAttention, second);
  EXPECT_THAT(failure_of(second).what(), HasSubstr("subtracts attention maps already"));
  JobSpec dex = this->spec("dex");
  dex.model_dir = made.path;
  EXPECT_THAT(failure_of(dex).what(), HasSubstr("DEX has no defined meaning on it"));
  choose(model::Train::kLora, second);
  RecordingSession more;
  const Published lora = run(second, more);
  EXPECT_NEAR(*lora.base_valid_loss, *made.valid_loss, 1e-4);
  EXPECT_LT(*lora.valid_loss, *lora.base_valid_loss);
}

}  // namespace
}  // namespace dex::train::testing
