#include "client/cli/set_field.h"

#include <gmock/gmock.h>

#include "client/cli/job_spec.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

TEST(SetFieldTest, SetsScalarsEnumsListsAndMaps) {
  v1::FineTuningJobSpec spec;
  EXPECT_TRUE(set_field(spec, "dex.lambda.end", "0.5").ok());
  EXPECT_TRUE(set_field(spec, "dex.lambda.schedule", "cosine").ok());
  EXPECT_TRUE(set_field(spec, "dex.head_selection.criterion", "CRITERION_ENTROPY").ok());
  EXPECT_TRUE(set_field(spec, "hyperparameters.max_steps", "40").ok());
  EXPECT_TRUE(set_field(spec, "hyperparameters.packing", "false").ok());
  EXPECT_TRUE(set_field(spec, "metadata", "team=compilers").ok());
  EXPECT_TRUE(set_field(spec, "metadata", "note=a=b").ok());
  EXPECT_EQ(spec.dex().lambda().end(), 0.5);
  EXPECT_EQ(spec.dex().lambda().schedule(), v1::Lambda::SCHEDULE_COSINE);
  EXPECT_EQ(spec.dex().head_selection().criterion(), v1::HeadSelection::CRITERION_ENTROPY);
  EXPECT_EQ(spec.hyperparameters().max_steps(), 40u);
  EXPECT_TRUE(spec.hyperparameters().has_packing());
  EXPECT_EQ(spec.metadata().at("note"), "a=b");

  for (const auto& [path, value] :
       {std::pair("dex.form", "prefix_mean"), std::pair("dex.projection", "dense"),
        std::pair("dex.start", "literal"), std::pair("dex.bottleneck.activation", "silu"),
        std::pair("dex.lambda.value", "0.2"), std::pair("dex.head_selection.soft_floor", "0.1")}) {
    EXPECT_TRUE(set_field(spec, path, value).ok()) << path;
  }
  EXPECT_EQ(spec.dex().form(), v1::DexMethod::FORM_PREFIX_MEAN);
  EXPECT_EQ(spec.dex().projection(), v1::DexMethod::PROJECTION_DENSE);

  v1::ListFineTuningJobsRequest::Filter filter;
  EXPECT_TRUE(set_field(filter, "states", "queued,running").ok());
  EXPECT_EQ(filter.states_size(), 2);
}

TEST(SetFieldTest, ErrorsNamePlaceValueAndWhatThereIs) {
  v1::FineTuningJobSpec spec;
  const auto unknown = set_field(spec, "dex.lamda.end", "0.5");
  EXPECT_EQ(unknown.reason(), "UNKNOWN_FIELD");
  EXPECT_THAT(unknown.message(), HasSubstr("\"lamda\""));
  EXPECT_THAT(unknown.message(), HasSubstr("lambda"));
  EXPECT_THAT(set_field(spec, "dex.lambda.schedule", "linear").message(),
              HasSubstr("one of paper_eq4, cosine"));
  EXPECT_THAT(set_field(spec, "hyperparameters.max_steps", "-3").message(),
              HasSubstr("whole number of at least 0"));
  EXPECT_THAT(set_field(spec, "hyperparameters.learning_rate", "fast").message(),
              HasSubstr("\"fast\" is not a number"));
  EXPECT_THAT(set_field(spec, "hyperparameters", "1").message(),
              HasSubstr("name one of its fields"));
  EXPECT_EQ(spec.hyperparameters().ByteSizeLong(), 0u);  // nothing half set
}

TEST(JobSpecTest, FlagsBecomeASpec) {
  SpecFlags flags;
  flags.model = "smollm2-135m-instruct";
  flags.training_file = "file-1";
  flags.preset = "long-text";
  flags.max_steps = "12";
  flags.sets = {"evaluation.max_tokens=4096"};
  flags.metadata = {"a=b"};
  const auto spec = make_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(spec->dex().preset(), "long_text");
  EXPECT_EQ(spec->hyperparameters().max_steps(), 12u);
  EXPECT_EQ(spec->evaluation().max_tokens(), 4096u);
}

TEST(JobSpecTest, ThePresetOfAControlIsRefused) {
  SpecFlags flags;
  flags.method = "kvo_only";
  EXPECT_TRUE(make_spec(flags)->has_kvo_only());
  flags.preset = "code";
  EXPECT_EQ(make_spec(flags).status().reason(), "UNUSED_FIELD");
  flags.method = "lora";
  EXPECT_THAT(make_spec(flags).status().message(),
              HasSubstr("\"lora\" is not one of dex, kvo_only"));
}

}  // namespace
}  // namespace dex::cli
