// A job from start to published adapter on a model of each family (tests/data/model/families).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/model/adapter.h"

namespace dex::train::testing {
namespace {

using ::testing::Each;
using ::testing::Le;

class FamilyJobTest : public JobTest, public ::testing::WithParamInterface<std::string> {
 protected:
  FamilyJobTest() {
    std::filesystem::remove_all(directory_ / "model");
    dex::testing::write_family(
        directory_ / "model", GetParam(),
        dex::testing::family_tensors(dex::testing::family_golden(GetParam())));
    for (const auto& [file, stream] :
         {std::pair("train.jsonl", 77), std::pair("validation.jsonl", 78)}) {
      auto rows = tiny_rows(24, 40, static_cast<uint64_t>(stream));
      for (auto& row : rows) {
        for (int32_t& id : row) id %= 71;
      }
      write_rows(directory_ / file, rows);
    }
  }
  // Runs the job: it learns, and what it publishes says what was trained.
  Published learns_and_publishes(const JobSpec& spec) const {
    RecordingSession session;
    const Published published = run(spec, session);
    EXPECT_LT(*published.valid_loss, *published.base_valid_loss);
    if (!spec.dex.publishes_model() && model::not_foldable(spec.dex).empty()) {
      EXPECT_THAT(session.numbers("export_complete", "maxAbsLogitDiff"), Each(Le(1e-4)));
    }
    return published;
  }
  [[nodiscard]] bool differential() const {
    return model::load_config(directory_ / "model").differential();
  }
};

TEST_P(FamilyJobTest, TrainsAndPublishesWhatLoadsBack) {
  JobSpec spec = this->spec();
  if (differential()) choose(model::Train::kKvoOnly, spec);
  const Published published = learns_and_publishes(spec);

  const auto config = model::load_config(directory_ / "model");
  const auto base = model::load_weights(directory_ / "model", config, {.dtype = at::kFloat});
  const auto adapter = model::load_adapter(
      published.path, {config, model::base_weights_sha256(directory_ / "model")});
  for (size_t i = 0; i < base.layers.size(); ++i) {
    const model::LayerWeights& was = base.layers[i];
    const model::LayerAdaptation& now = adapter.adaptation.layers[i];
    EXPECT_FALSE(now.k.equal(was.k));
    for (const auto& [bias, before] :
         {std::pair(now.k_bias, was.k_bias), std::pair(now.v_bias, was.v_bias),
          std::pair(now.o_bias, was.o_bias)}) {
      ASSERT_EQ(bias.defined(), before.defined());
      if (bias.defined()) {
        EXPECT_FALSE(bias.equal(before));
      }
    }
  }
}

class DifferentialJobTest : public FamilyJobTest {};

// λ's vectors are trained as everything else; the checkpoint is a DiffLlama again.
TEST_P(DifferentialJobTest, FullTrainsLambdaToo) {
  JobSpec spec = this->spec();
  choose(model::Train::kFull, spec);
  const Published published = learns_and_publishes(spec);
  const auto config = model::load_config(published.path);
  EXPECT_TRUE(config.differential());
  const auto was = model::load_weights(directory_ / "model", config, {.dtype = at::kFloat}),
             now = model::load_weights(published.path, config, {.dtype = at::kFloat});
  for (size_t i = 0; i < was.layers.size(); ++i) {
    EXPECT_FALSE(now.layers[i].lambda_q1.equal(was.layers[i].lambda_q1));
    EXPECT_FALSE(now.layers[i].lambda_k2.equal(was.layers[i].lambda_k2));
  }
}

// What is added to a base lies beside it, and loads back with every term moved.
TEST_P(DifferentialJobTest, LoraAndAdaptersPublishWhatLoadsBack) {
  const auto config = model::load_config(directory_ / "model");
  for (const auto train : {model::Train::kLora, model::Train::kAdapter}) {
    JobSpec spec = this->spec("attempt-" + std::string(model::name(train)));
    choose(train, spec);
    const Published published = learns_and_publishes(spec);
    EXPECT_EQ(published.method, model::method_name(train));
    EXPECT_EQ(published.artifact_class, "LIGHT");
    auto adapter = model::load_adapter(published.path,
                                       {config, model::base_weights_sha256(directory_ / "model")});
    EXPECT_EQ(adapter.adaptation.options.train, train);
    for (const auto& entry : model::trainables(adapter.adaptation)) {
      if (!entry.name.ends_with("lora_B.weight") && !entry.name.ends_with("up.weight")) continue;
      EXPECT_GT(entry.tensor->abs().max().item<double>(), 0) << entry.name << " began at 0";
    }
  }
}

TEST_P(DifferentialJobTest, RefusesDexBeforeItReadsData) {
  JobSpec spec = this->spec();
  std::filesystem::remove(spec.training_path);
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(),
              ::testing::HasSubstr("model_type diffllama subtracts attention maps by itself"));
}

INSTANTIATE_TEST_SUITE_P(Families, DifferentialJobTest,
                         ::testing::ValuesIn(dex::testing::differential_family_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Families, FamilyJobTest, ::testing::ValuesIn(dex::testing::family_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace dex::train::testing
