// Jobs of every way of training of method.md §3.5 and §7: same data and events, and what each
// publishes loads back as what was trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/worker/train/held_out_rows.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"

namespace dex::train::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Expected {
  model::Train train;
  std::string method, artifact_class;
  int64_t trained = 0, added = 0;
};

// Of the tiny model: L 2, D 32, F 48, H 4, K 2, d 8, V 97, tied. LoRA r 3 and adapter 6 as
// choose() has them.
constexpr int64_t kAll = 97 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32) + 32,
                  kBranch = 2 * (8 * 8 + 1),
                  kLora = 2 * 3 * ((32 + 32) + 2 * (16 + 32) + (32 + 32));
const std::vector<Expected> kExpected{
    {model::Train::kLora, "lora", "LIGHT", kLora, kLora},
    {model::Train::kAdapter, "adapter", "LIGHT", 4 * (2 * 6 * 32 + 6 + 32),
     4 * (2 * 6 * 32 + 6 + 32)},
    {model::Train::kFull, "full", "MODEL", kAll, 0},
    {model::Train::kLoraDex, "dex", "LIGHT", kLora + kBranch, kLora + kBranch},
    {model::Train::kFullDex, "dex", "MODEL", kAll + kBranch, kBranch},
};

class MethodTest : public JobTest, public ::testing::WithParamInterface<Expected> {
 protected:
  // Held-out loss of a model on the rows that the job held out.
  double loss_of(const model::Weights& weights, const model::Adaptation& adaptation) {
    const model::Llama llama(config_, weights);
    return loss_on_held_out_rows(llama, adaptation);
  }
  model::Config config_ = model::load_config(directory_ / "model");
  model::Weights base_ = model::load_weights(directory_ / "model", config_, {.dtype = at::kFloat});
};

TEST_P(MethodTest, StartsAtTheBaseAndPublishesWhatLoadsBack) {
  JobSpec spec = this->spec();
  choose(GetParam().train, spec);
  RecordingSession session;
  const Published published = run(spec, session);

  EXPECT_EQ(published.base_valid_loss, loss_of(base_, {}));  // method.md §10 item 1
  EXPECT_LT(*published.valid_loss, *published.base_valid_loss);
  EXPECT_EQ(published.method, GetParam().method);
  EXPECT_EQ(published.train, model::name(GetParam().train));
  EXPECT_EQ(published.artifact_class, GetParam().artifact_class);
  EXPECT_EQ(published.trained_parameters, GetParam().trained);
  EXPECT_EQ(published.added_parameters, GetParam().added);
  EXPECT_EQ(session.data("training_start").at(0).at("trainedParameters"),
            std::to_string(GetParam().trained));
  EXPECT_EQ(session.numbers("metrics", "step"), (std::vector<double>{1, 2, 3, 4, 5, 6}));

  if (spec.dex.trains_all()) {
    EXPECT_NEAR(loss_of(model::load_weights(published.path, config_, {.dtype = at::kFloat}), {}),
                *published.valid_loss, 1e-5);
    // Whole as a base model: what belongs to one came along.
    EXPECT_EQ(model::load_config(published.path).layers, config_.layers);
  } else {
    const auto adapter = model::load_adapter(
        published.path, {config_, model::base_weights_sha256(directory_ / "model")});
    EXPECT_NEAR(loss_of(base_, adapter.adaptation), *published.valid_loss, 1e-5);
    EXPECT_EQ(adapter.job_id, "ftjob-test");
  }
}

// Everything that is not the method is the same: the same packs in the same order, so the first
// update sees the same loss.
TEST_P(MethodTest, SeesTheSameDataInTheSameOrder) {
  const auto losses_of = [&](model::Train train) {
    JobSpec spec = this->spec(std::string("same-") + std::string(model::name(train)));
    choose(train, spec);
    spec.dex.lora.dropout = 0;
    spec.hyperparameters.learning_rate = 1e-12;  // nobody moves
    spec.hyperparameters.branch_learning_rate = 1e-12;
    spec.hyperparameters.lambda_learning_rate = 1e-12;
    RecordingSession session;
    run(spec, session);
    return session.numbers("metrics", "trainLoss");
  };
  const auto found = losses_of(GetParam().train), reference = losses_of(model::Train::kKvoOnly);
  ASSERT_EQ(found.size(), reference.size());
  for (size_t u = 0; u < found.size(); ++u) EXPECT_NEAR(found[u], reference[u], 1e-5) << u;
}

INSTANTIATE_TEST_SUITE_P(Trains, MethodTest, ::testing::ValuesIn(kExpected),
                         [](const auto& info) { return test_name(info.param.train); });

// What the last event says of folding: full and diff publish a model in which nothing was folded.
TEST_F(JobTest, SaysOfFoldingOnlyWhatWasFolded) {
  const std::vector<std::pair<model::Train, std::string>> expected{
      {model::Train::kKvoDex, "Folded, it differs by at most "},
      {model::Train::kLora, "Folded, it differs by at most "},
      {model::Train::kFullDex, "Folded, it differs by at most "},
      {model::Train::kFull, "It is a whole model, with nothing to fold"},
      {model::Train::kDiffAttention,
       "Its method diff keeps a second attention map; it can't be folded, serve it as a base "
       "model"},
      {model::Train::kAdapter,
       "Its method adapter acts between two products; it can't be folded, serve it as an adapter"}};
  for (const auto& [train, text] : expected) {
    JobSpec spec = this->spec(test_name(train));
    choose(train, spec);
    RecordingSession session;
    run(spec, session);
    const auto event =
        std::find_if(session.events.begin(), session.events.end(),
                     [](const Event& each) { return each.type == "export_complete"; });
    ASSERT_NE(event, session.events.end());
    EXPECT_TRUE(event->message.starts_with("final/ reads back as trained. " + text))
        << event->message;
    EXPECT_EQ(nlohmann::json::parse(event->data).contains("maxAbsLogitDiff"),
              text.starts_with("Folded"));
  }
}

TEST_F(JobTest, ALoraJobPublishesPeftsLayout) {
  JobSpec spec = this->spec();
  choose(model::Train::kLora, spec);
  RecordingSession session;
  const fs::path path = run(spec, session).path;
  const auto config = nlohmann::json::parse(bytes_of(path / "adapter_config.json"));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("r"), 3);
  EXPECT_EQ(config.at("lora_dropout"), 0.1);
  EXPECT_EQ(nlohmann::json::parse(bytes_of(path / "provenance.json")).at("job_id"), "ftjob-test");
  std::set<std::string> names;
  const auto file = model::Safetensors::open(path / "adapter_model.safetensors",
                                             model::Safetensors::Access::kRead);
  EXPECT_EQ(file.tensors().size(), 2u * 4 * 2);
  EXPECT_TRUE(file.has("base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight"));
}

TEST_F(JobTest, RefusesOptionsThatCantBeTrained) {
  JobSpec spec = this->spec();
  choose(model::Train::kLora, spec);
  spec.dex.lora.r = 0;
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(), HasSubstr("r must be between 1 and 256, got 0"));
}

}  // namespace
}  // namespace dex::train::testing
