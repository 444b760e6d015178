// What a client may know of a method before it asks for a job of it.

#include "scheduler/core/model_limits.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::ModelLimits limits(const std::string& method) {
  auto found = model_limits(smollm2(), method);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : v1::ModelLimits();
}

std::map<std::string, v1::ModelLimits::Range> ranges(const v1::ModelLimits& limits) {
  std::map<std::string, v1::ModelLimits::Range> by_field;
  for (const auto& range : limits.ranges()) by_field[range.field()] = range;
  return by_field;
}

// What the ranges say is what create takes, at both ends and beyond them.
TEST(ModelLimitsTest, RangesAreWhatAJobIsHeldTo) {
  const auto dex = ranges(limits(""));
  EXPECT_EQ(dex.at("hyperparameters.max_seq_length").maximum(), 8192) << "the model's context";
  EXPECT_EQ(dex.at("hyperparameters.first_layer").maximum(), 29);
  EXPECT_TRUE(dex.at("hyperparameters.learning_rate").above_minimum());
  EXPECT_TRUE(dex.contains("dex.lora.r"));
  EXPECT_FALSE(dex.contains("lora.r"));
  const auto lora = ranges(limits("lora"));
  EXPECT_EQ(lora.at("lora.r").minimum(), 1);
  EXPECT_EQ(lora.at("lora.r").maximum(), 256);
  EXPECT_FALSE(lora.contains("hyperparameters.branch_learning_rate"));
  EXPECT_FALSE(lora.contains("dex.lambda.end"));
  for (const char* field : {"batch_size", "n_epochs", "max_seq_length"}) {
    const auto& range = dex.at(std::string("hyperparameters.") + field);
    const auto asks = [&](double value) {
      ResolveInput in = input("small");
      in.spec.mutable_hyperparameters()->clear_max_steps();
      auto& hyper = *in.spec.mutable_hyperparameters();
      hyper.GetReflection()->SetUInt32(&hyper, hyper.GetDescriptor()->FindFieldByName(field),
                                       static_cast<uint32_t>(value));
      return resolve(in).status();
    };
    EXPECT_TRUE(asks(range.minimum()).ok()) << asks(range.minimum()).to_string();
    EXPECT_TRUE(asks(range.maximum()).ok()) << asks(range.maximum()).to_string();
    EXPECT_EQ(asks(range.minimum() - 1).reason(), "VALUE_OUT_OF_RANGE") << field;
    EXPECT_EQ(asks(range.maximum() + 1).reason(), "VALUE_OUT_OF_RANGE") << field;
  }
}

// Figures of method.md §2.7, in fp32.
TEST(ModelLimitsTest, ArtefactsByTrainAndHowManyAreServed) {
  const auto control = limits("kvo_only");
  ASSERT_EQ(control.artifacts_size(), 1);
  EXPECT_EQ(control.artifacts(0).train(), "");
  EXPECT_EQ(control.artifacts(0).artifact_class(), "KVO");
  EXPECT_EQ(control.artifacts(0).trained_parameters(), 16'588'800);
  EXPECT_EQ(control.artifacts(0).artifact_bytes(), 4 * 16'588'800);
  EXPECT_EQ(control.artifacts(0).adapters_served(), 32) << "2 GiB of 66 MB each";

  const auto dex = limits("dex");
  std::map<std::string, v1::ModelLimits::Artifact> by_train;
  for (const auto& artifact : dex.artifacts()) by_train[artifact.train()] = artifact;
  ASSERT_EQ(by_train.size(), 4u);
  EXPECT_EQ(by_train["dex_only"].artifact_class(), "LIGHT");
  EXPECT_EQ(by_train["lora+dex"].artifact_class(), "LIGHT");
  EXPECT_EQ(by_train["kvo+dex"].artifact_class(), "KVO");
  EXPECT_EQ(by_train["full+dex"].artifact_class(), "MODEL");
  EXPECT_EQ(by_train["full+dex"].adapters_served(), 0);
  EXPECT_EQ(by_train["dex_only"].adapters_served(), 485) << "30 layers, 9 heads, 64×64, fp32";
  EXPECT_EQ(by_train["kvo+dex"].trained_parameters(),
            16'588'800 + by_train["dex_only"].trained_parameters());
  EXPECT_LT(by_train["dex_only"].least_memory_bytes(), by_train["full+dex"].least_memory_bytes());
}

TEST(ModelLimitsTest, APoolFitsWhatItsMemoryAllows) {
  auto found = limits("dex");
  int64_t full = 0, control = 0;
  for (const auto& artifact : found.artifacts()) {
    if (artifact.train() == "full+dex") full = artifact.least_memory_bytes();
    if (artifact.train() == "kvo+dex") control = artifact.least_memory_bytes();
  }
  ASSERT_GT(full, control);
  add_pool("large", full, found);
  add_pool("small", full - 1, found);
  add_pool("silent", 0, found);
  EXPECT_THAT(found.pools(0).fits(), ElementsAre("kvo+dex", "dex_only", "lora+dex", "full+dex"));
  EXPECT_THAT(found.pools(1).fits(), ElementsAre("kvo+dex", "dex_only", "lora+dex"));
  EXPECT_EQ(found.pools(2).fits_size(), 4);
  auto one = limits("adapter");
  add_pool("cpu", 0, one);
  EXPECT_THAT(one.pools(0).fits(), ElementsAre("adapter"));
}

TEST(ModelLimitsTest, WhatCantBeAdaptedIsRefusedAsAJobWouldBe) {
  EXPECT_EQ(model_limits(smollm2(), "dpo").status().reason(), "INVALID_FIELD");
  EXPECT_THAT(model_limits(smollm2(), "dpo").status().message(), HasSubstr("kvo_only"));
  v1::Model pairs = smollm2();
  pairs.set_differential(true);
  ResolveInput in = input("small");
  in.model = pairs;
  EXPECT_EQ(model_limits(pairs, "dex").status().reason(), refused(in).reason());
  EXPECT_TRUE(model_limits(pairs, "lora").ok());
}

}  // namespace
}  // namespace dex::core
