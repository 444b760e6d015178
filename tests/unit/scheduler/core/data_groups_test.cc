// Rows drawn by tag or language (finetuning.proto, Hyperparameters.group_by).
#include "scheduler/core/data_groups.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using v1::Hyperparameters;

// 400 rows of which 390 carry a language.
ResolveInput two_languages(std::string_view preset = "code") {
  ResolveInput in = input(preset);
  in.training.rows_by_language = {{"cy", 90}, {"en", 300}};
  in.spec.mutable_hyperparameters()->set_group_by(Hyperparameters::GROUP_BY_LANGUAGE);
  return in;
}

void weigh(ResolveInput& in, const std::string& group, double weight) {
  (*in.spec.mutable_hyperparameters()->mutable_group_weights())[group] = weight;
}

TEST(DataGroupsTest, RowsAreReadAsTheyAreUnlessAsked) {
  const auto config = resolved(input()).config;
  EXPECT_EQ(config.spec().hyperparameters().group_by(), Hyperparameters::GROUP_BY_NONE);
  EXPECT_EQ(config.sources().at("hyperparameters.group_by"), "DEFAULT (ours)");
}

// api.md §3.
TEST(DataGroupsTest, PresetMultilingualBalancesLanguages) {
  auto in = two_languages("multilingual");
  in.spec.mutable_hyperparameters()->clear_group_by();
  const auto result = resolved(in);
  EXPECT_EQ(result.config.spec().hyperparameters().group_by(), Hyperparameters::GROUP_BY_LANGUAGE);
  EXPECT_EQ(result.config.sources().at("hyperparameters.group_by"), "PRESET (ours)");
  EXPECT_THAT(result.warnings, Not(Contains(StartsWith("group_single"))));
  auto control = in;  // the same rows for the control (method.md §2.7)
  control.spec.mutable_kvo_only()->set_preset("multilingual");
  EXPECT_EQ(resolved(control).config.spec().hyperparameters().group_by(),
            Hyperparameters::GROUP_BY_LANGUAGE);
  in.spec.mutable_hyperparameters()->set_group_by(Hyperparameters::GROUP_BY_NONE);
  EXPECT_EQ(resolved(in).config.spec().hyperparameters().group_by(),
            Hyperparameters::GROUP_BY_NONE);
  // What was asked for by its first version stays what it was, resolved again too.
  in.spec.mutable_hyperparameters()->clear_group_by();
  in.spec.mutable_dex()->set_preset("multilingual@1");
  const auto first = resolved(in);
  EXPECT_EQ(first.config.spec().hyperparameters().group_by(), Hyperparameters::GROUP_BY_NONE);
  in.spec = first.config.spec();
  EXPECT_EQ(resolved(in).config.spec().SerializeAsString(),
            first.config.spec().SerializeAsString());
}

TEST(DataGroupsTest, WeightsAreOfGroupsThatTheFileHas) {
  auto in = two_languages();
  weigh(in, "cy", 2);
  weigh(in, "(none)", 0.5);
  const auto result = resolved(in);
  EXPECT_EQ(result.config.spec().hyperparameters().group_weights().at("cy"), 2);
  EXPECT_EQ(result.config.sources().at("hyperparameters.group_weights"), "USER");
  weigh(in, "fr", 2);
  EXPECT_EQ(refused(in).message(),
            "hyperparameters.group_weights no row of the training file has language \"fr\"; there "
            "are \"(none)\", \"cy\", \"en\"");
  EXPECT_EQ(refused(in).reason(), "INVALID_FIELD");
  // The counts of a file name its largest hundred; others may be there.
  for (int i = 0; i < 98; ++i) in.training.rows_by_language["x-" + std::to_string(i)] = 1;
  EXPECT_TRUE(resolve(in).ok());
}

TEST(DataGroupsTest, WeightsNeedGroupsAndLimits) {
  auto in = two_languages();
  weigh(in, "cy", 2);
  in.spec.mutable_hyperparameters()->set_group_by(Hyperparameters::GROUP_BY_NONE);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(),
              HasSubstr("it needs hyperparameters.group_by TAG or LANGUAGE"));
  in.spec.mutable_hyperparameters()->set_group_by(Hyperparameters::GROUP_BY_LANGUAGE);
  weigh(in, "cy", 0);
  EXPECT_EQ(refused(in).reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_THAT(refused(in).message(),
              HasSubstr("between 0.001 and 1000 for each group, got 0 for "
                        "\"cy\"; rows that are not to be read are left out"));
  weigh(in, "cy", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(refused(in).reason(), "INVALID_FIELD");
  weigh(in, "cy", 1);
  weigh(in, std::string(257, 'c'), 1);
  EXPECT_THAT(refused(in).message(), HasSubstr("a group's name of 257 bytes, 256 are allowed"));
  in.spec.mutable_hyperparameters()->clear_group_weights();
  for (int i = 0; i < 257; ++i) weigh(in, "x-" + std::to_string(i), 1);
  EXPECT_THAT(refused(in).message(), HasSubstr("has 257 groups, 256 are allowed"));
}

TEST(DataGroupsTest, AFileWithNothingToBalanceIsTold) {
  auto in = two_languages();
  EXPECT_THAT(resolved(in).warnings, Not(Contains(StartsWith("group_single"))));
  in.training.rows_by_language = {{"en", 400}};
  EXPECT_THAT(
      resolved(in).warnings,
      Contains("group_single: hyperparameters.group_by has nothing to balance: every row of "
               "the training file has language \"en\", so rows are read as they are"));
  in.spec.mutable_hyperparameters()->set_group_by(Hyperparameters::GROUP_BY_TAG);
  EXPECT_THAT(resolved(in).warnings,
              Contains(HasSubstr("no row of the training file carries a tag")));
}

TEST(DataGroupsTest, FactsOfAFileHaveItsGroups) {
  v1::File file;
  (*file.mutable_statistics()->mutable_rows_by_tag())["law"] = 40;
  (*file.mutable_statistics()->mutable_rows_by_language())["cy"] = 50;
  const DataFacts facts = data_facts(file);
  EXPECT_EQ(facts.rows_by_tag.at("law"), 40);
  EXPECT_EQ(facts.rows_by_language.at("cy"), 50);
}

}  // namespace
}  // namespace dex::core
