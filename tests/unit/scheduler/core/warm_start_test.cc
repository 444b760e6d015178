#include "scheduler/core/warm_start.h"

#include <gmock/gmock.h>

#include <functional>
#include <utility>

#include "scheduler/core/resolve.h"
#include "tests/unit/scheduler/core/smollm2.h"

namespace dex::core {
namespace {

using testing::HasSubstr;
using v1::DexMethod;
using v1::DiffMethod;
using v1::FineTuningJobSpec;
using v1::HeadSelection;
using v1::Lambda;

constexpr const char* kId = "ft:smollm2-135m-instruct:default::01parent";

ResolveInput warm_input() {
  ResolveInput in;
  in.spec.set_model("smollm2-135m-instruct");
  in.spec.set_training_file("file-1");
  in.spec.mutable_hyperparameters()->set_max_steps(180);
  in.model = smollm2();
  in.training = {v1::FILE_FORMAT_TEXT, 400, 1'000'000, 20'000};
  in.seed = 7;
  return in;
}

// A job that goes on from what a job of `made` left, with nothing else asked for.
ResolveInput goes_on_from(const FineTuningJobSpec& made, std::optional<double> lambda = 0.25) {
  ResolveInput parent = warm_input();
  parent.spec.MergeFrom(made);
  const auto resolved = resolve(parent);
  EXPECT_TRUE(resolved.ok()) << resolved.status().to_string();
  ResolveInput in = warm_input();
  in.spec.set_model(kId);
  in.start = StartAdapter{kId, resolved->config.spec(), lambda};
  return in;
}

FineTuningJobSpec dex(const std::string& preset) {
  FineTuningJobSpec spec;
  spec.mutable_dex()->set_preset(preset);
  return spec;
}

FineTuningJobSpec effective(const ResolveInput& in, Sources* sources = nullptr) {
  const auto result = resolve(in);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return {};
  if (sources) *sources = {result->config.sources().begin(), result->config.sources().end()};
  return result->config.spec();
}

TEST(WarmStartTest, TheModelIsABaseOrAnAdapter) {
  FineTuningJobSpec spec;
  spec.set_model("smollm2-135m-instruct");
  EXPECT_FALSE(goes_on(spec));
  spec.set_model(kId);
  EXPECT_TRUE(goes_on(spec));
  EXPECT_EQ(base_model_of(kId), "smollm2-135m-instruct");
  EXPECT_EQ(base_model_of("smollm2-135m-instruct"), "smollm2-135m-instruct");
}

TEST(WarmStartTest, TakesShapeAndPresetFromTheAdapterAndGoesOnWithItsLambda) {
  Sources sources;
  auto made = dex("multilingual");
  made.mutable_dex()->mutable_bottleneck()->set_width_ratio(0.5);
  const auto spec = effective(goes_on_from(made), &sources);
  EXPECT_EQ(spec.model(), kId);
  EXPECT_EQ(spec.dex().preset(), "multilingual");
  EXPECT_EQ(spec.dex().projection(), DexMethod::PROJECTION_BOTTLENECK);
  EXPECT_EQ(spec.dex().bottleneck().width_ratio(), 0.5);
  EXPECT_EQ(sources.at("dex.bottleneck.width_ratio"), "MODEL");
  EXPECT_EQ(sources.at("dex.form"), "MODEL");
  // COSINE ends where the adapter's λ is; from there on it is constant.
  EXPECT_EQ(spec.dex().lambda().schedule(), Lambda::SCHEDULE_CONSTANT);
  EXPECT_EQ(spec.dex().lambda().value(), 0.25);
  EXPECT_FALSE(spec.dex().lambda().has_start());
  // multilingual selects again on the way, by its own thresholds.
  EXPECT_EQ(spec.dex().head_selection().criterion(), HeadSelection::CRITERION_THRESHOLD);
  EXPECT_FALSE(spec.dex().has_start());
  EXPECT_FALSE(spec.dex().has_w_d_init());
}

TEST(WarmStartTest, ALearnedLambdaIsLearnedOn) {
  const auto spec = effective(goes_on_from(dex("paper"), std::nullopt));
  EXPECT_EQ(spec.dex().lambda().schedule(), Lambda::SCHEDULE_LEARNED);
  EXPECT_FALSE(spec.dex().lambda().has_learn_init());
  EXPECT_EQ(spec.dex().lambda().anneal_case(), Lambda::ANNEAL_NOT_SET);
  EXPECT_TRUE(spec.hyperparameters().has_lambda_learning_rate());
  EXPECT_FALSE(spec.dex().head_selection().has_criterion());  // the heads are the adapter's
}

// method.md §2.5: a fixed λ goes on as it ended, and 0 would train nothing.
TEST(WarmStartTest, AnAdapterThatEndedWithoutLambdaIsNoStart) {
  const auto status = resolve(goes_on_from(dex("small"), 0.0)).status();
  EXPECT_EQ(status.reason(), "DEAD_CONFIGURATION");
  EXPECT_THAT(status.message(),
              HasSubstr("model lambda is 0 for the whole job: the adapter that it "
                        "goes on from ended at λ 0; begin from the base model"));
  EXPECT_TRUE(resolve(goes_on_from(dex("paper"), std::nullopt)).ok());  // learned: D moves it
}

TEST(WarmStartTest, TheFirstLayerIsTheAdapters) {
  auto made = dex("paper");
  made.mutable_hyperparameters()->set_first_layer(12);
  ResolveInput in = goes_on_from(made, std::nullopt);
  Sources sources;
  EXPECT_EQ(effective(in, &sources).hyperparameters().first_layer(), 12u);
  EXPECT_EQ(sources.at("hyperparameters.first_layer"), "MODEL");
  in.spec.mutable_hyperparameters()->set_first_layer(11);
  EXPECT_THAT(resolve(in).status().message(),
              HasSubstr("hyperparameters.first_layer is not the adapter's, which is 12"));
  ResolveInput of_all = goes_on_from(dex("paper"), std::nullopt);
  of_all.spec.mutable_hyperparameters()->set_first_layer(11);
  EXPECT_THAT(resolve(of_all).status().message(),
              HasSubstr("hyperparameters.first_layer is not the adapter's, which is 0"));
}

TEST(WarmStartTest, EveryMethodButWholeModels) {
  FineTuningJobSpec lora, adapter, kvo, full;
  lora.mutable_lora()->set_r(3);
  adapter.mutable_adapter()->set_size(5);
  kvo.mutable_kvo_only();
  full.mutable_full();
  EXPECT_EQ(effective(goes_on_from(lora)).lora().r(), 3u);
  EXPECT_EQ(effective(goes_on_from(adapter)).adapter().size(), 5u);
  EXPECT_TRUE(effective(goes_on_from(kvo)).has_kvo_only());
  kvo.mutable_kvo_only()->set_preset("paper");
  auto control = goes_on_from(kvo);
  EXPECT_EQ(effective(control).kvo_only().preset(), "paper");
  EXPECT_EQ(effective(control).hyperparameters().learning_rate(), 1e-4);
  control.spec.mutable_kvo_only()->set_preset("small");  // how it is trained, not what it is
  EXPECT_EQ(effective(control).hyperparameters().learning_rate(), 5e-5);
  FineTuningJobSpec diff, all_of_diff, full_dex;
  diff.mutable_diff();
  all_of_diff.mutable_diff()->set_train(DiffMethod::TRAIN_ALL);
  full_dex.mutable_dex()->set_train(DexMethod::TRAIN_FULL_DEX);
  for (const auto& [made, method] : {std::pair(full, "full"), std::pair(full_dex, "dex"),
                                     std::pair(diff, "diff"), std::pair(all_of_diff, "diff")}) {
    const auto refused = resolve(goes_on_from(made)).status();
    EXPECT_EQ(refused.reason(), "ADAPTER_MISMATCH");
    EXPECT_THAT(refused.message(),
                HasSubstr("is a whole model, not an adapter (method " + std::string(method)));
    EXPECT_THAT(refused.message(), HasSubstr(kId));
  }
}

// A DiffLlama trains as a base and its adapters are gone on from; a whole one is no adapter.
TEST(WarmStartTest, OnADifferentialModelTheSameHolds) {
  const auto on_differential = [](FineTuningJobSpec made) {
    ResolveInput parent = warm_input();
    parent.model.set_differential(true);
    parent.spec.MergeFrom(made);
    const auto resolved = resolve(parent);
    EXPECT_TRUE(resolved.ok()) << resolved.status().to_string();
    ResolveInput in = warm_input();
    in.model.set_differential(true);
    in.spec.set_model(kId);
    in.start = StartAdapter{kId, resolved->config.spec(), std::nullopt};
    return resolve(in);
  };
  FineTuningJobSpec lora, full;
  lora.mutable_lora()->set_r(3);
  full.mutable_full();
  EXPECT_TRUE(on_differential(lora).ok());
  EXPECT_THAT(on_differential(full).status().message(),
              HasSubstr("is a whole model, not an adapter (method full made it)"));
}

TEST(WarmStartTest, NoAdapterBecomesADifferentialModel) {
  FineTuningJobSpec lora;
  lora.mutable_lora();
  auto in = goes_on_from(lora);
  in.spec.mutable_diff();
  EXPECT_THAT(resolve(in).status().message(),
              HasSubstr("diff is not the adapter's method, which is lora"));
}

TEST(WarmStartTest, HowItIsTrainedIsTheUsersChoice) {
  FineTuningJobSpec lora;
  lora.mutable_lora()->set_dropout(0.2);
  auto in = goes_on_from(lora);
  EXPECT_EQ(effective(in).lora().dropout(), 0);
  in.spec.mutable_lora()->set_dropout(0.1);
  in.spec.mutable_lora()->set_r(8);  // as the adapter's
  in.spec.mutable_hyperparameters()->set_learning_rate(1e-5);
  EXPECT_EQ(effective(in).lora().dropout(), 0.1);
  EXPECT_EQ(effective(in).hyperparameters().learning_rate(), 1e-5);
}

TEST(WarmStartTest, WhatIsNotTheAdaptersIsRefusedByField) {
  const auto refusal = [](const std::function<void(FineTuningJobSpec&)>& change) {
    auto in = goes_on_from(dex("small"));
    change(in.spec);
    return resolve(in).status();
  };
  const auto form = refusal([](auto& s) {
    s.mutable_dex()->set_form(DexMethod::FORM_PAPER);
    s.mutable_dex()->set_sign(DexMethod::SIGN_MINUS);
  });
  EXPECT_EQ(form.reason(), "ADAPTER_MISMATCH");
  EXPECT_THAT(form.message(), HasSubstr("dex.form is not the adapter's, which is FORM_HEAD_MEAN"));
  EXPECT_THAT(form.message(), HasSubstr("dex.sign is not the adapter's, which is SIGN_PLUS"));
  const auto method = refusal([](auto& s) { s.mutable_lora(); });
  EXPECT_THAT(method.message(), HasSubstr("lora is not the adapter's method, which is dex"));
  const auto lambda = refusal([](auto& s) { s.mutable_dex()->mutable_lambda()->set_end(0.5); });
  EXPECT_THAT(lambda.message(), HasSubstr("dex.lambda.end has no effect here"));
  const auto heads = refusal([](auto& s) {
    s.mutable_dex()->mutable_head_selection()->set_criterion(HeadSelection::CRITERION_ALL);
  });
  EXPECT_EQ(heads.reason(), "UNUSED_FIELD");
  EXPECT_THAT(heads.message(), HasSubstr("the heads are the adapter's"));
  const auto start = refusal([](auto& s) { s.mutable_dex()->set_start(DexMethod::START_LITERAL); });
  EXPECT_EQ(start.reason(), "UNUSED_FIELD");
}

TEST(WarmStartTest, TheEffectiveSpecResolvesToItselfAndGoesOnAgain) {
  auto in = goes_on_from(dex("small"));
  const auto spec = effective(in);
  in.spec = spec;
  EXPECT_EQ(effective(in).SerializeAsString(), spec.SerializeAsString());
  // The third generation.
  ResolveInput next = warm_input();
  next.spec.set_model(kId);
  next.start = StartAdapter{kId, spec, 0.25};
  EXPECT_EQ(effective(next).SerializeAsString(), spec.SerializeAsString());
}

}  // namespace
}  // namespace dex::core
