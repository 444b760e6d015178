#include "client/cli/set_field.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "client/cli/job_filter.h"
#include "client/cli/job_spec.h"
#include "client/cli/promote_if.h"
#include "client/cli/sweep.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::cli {
namespace {

using testing::ElementsAreArray;
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

TEST(JobFilterTest, FlagsBecomeTheFilterAndTimesAreDaysOrMoments) {
  JobFilterFlags flags;
  flags.states = {"queued", "running"};
  flags.method = "lora";
  flags.suffix = "legal";
  flags.text = "october";
  flags.metadata = {"team=a"};
  flags.created_after = "2026-11-30";
  flags.created_before = "2026-11-30T08:00:00.5Z";
  const auto filter = make_job_filter(flags);
  ASSERT_TRUE(filter.ok()) << filter.status().to_string();
  EXPECT_EQ(filter->states_size(), 2);
  EXPECT_EQ(filter->method(), "lora");
  EXPECT_EQ(filter->suffix_prefix(), "legal");
  EXPECT_EQ(filter->text(), "october");
  EXPECT_EQ(filter->metadata().at("team"), "a");
  EXPECT_EQ(filter->created_after().seconds(), 1'795'996'800);
  EXPECT_EQ(filter->created_before().seconds(), 1'795'996'800 + 8 * 3600);
  EXPECT_EQ(filter->created_before().nanos(), 500'000'000);
  flags.created_after = "yesterday";
  const auto refused = make_job_filter(flags);
  EXPECT_EQ(refused.status().reason(), "INVALID_FIELD");
  EXPECT_THAT(refused.status().message(), HasSubstr("--created-after"));
  EXPECT_THAT(refused.status().message(), HasSubstr("yesterday"));
}

TEST(SweepAxisTest, ValuesAreNumbersTruthsOrText) {
  const auto axis = parse_axis("hyperparameters.learning_rate=1e-5,true,cosine,3");
  ASSERT_TRUE(axis.ok()) << axis.status().to_string();
  EXPECT_EQ(axis->path(), "hyperparameters.learning_rate");
  ASSERT_EQ(axis->values_size(), 4);
  EXPECT_EQ(axis->values(0).number_value(), 1e-5);
  EXPECT_TRUE(axis->values(1).bool_value());
  EXPECT_EQ(axis->values(2).string_value(), "cosine");
  EXPECT_EQ(axis->values(3).number_value(), 3);
  for (const char* bad : {"", "seed", "=1", "seed="})
    EXPECT_EQ(parse_axis(bad).status().reason(), "INVALID_FIELD") << bad;
}

// As the name of a file may be.
TEST(SetFieldTest, BytesThatAreNoTextAreRefused) {
  v1::FineTuningJobSpec spec;
  const auto status = set_field(spec, "suffix", "caf\xE9");
  EXPECT_EQ(status.reason(), "INVALID_FIELD");
  EXPECT_THAT(status.message(), HasSubstr("suffix: byte 4 of the value is not UTF-8"));
  EXPECT_EQ(parse_gate("perplexity(caf\xE9.txt).loss<=0").status().reason(), "INVALID_FIELD");
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
  flags.patience = "4";
  flags.sets = {"evaluation.max_tokens=4096"};
  flags.metadata = {"a=b"};
  const auto spec = make_spec(flags);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(spec->dex().preset(), "long-text") << "the server knows both spellings";
  EXPECT_EQ(spec->hyperparameters().max_steps(), 12u);
  EXPECT_TRUE(spec->early_stopping().enabled());
  EXPECT_EQ(spec->early_stopping().patience(), 4u);
  EXPECT_EQ(spec->evaluation().max_tokens(), 4096u);
}

// A job that goes on from an adapter has its method; naming one, or a preset, is still possible.
TEST(JobSpecTest, AnAdapterAsModelLeavesTheMethodOpen) {
  SpecFlags flags;
  flags.model = "ft:smollm2-135m-instruct:default::01j";
  flags.training_file = "file-1";
  EXPECT_EQ(make_spec(flags)->method_case(), v1::FineTuningJobSpec::METHOD_NOT_SET);
  flags.preset = "paper";
  EXPECT_EQ(make_spec(flags)->dex().preset(), "paper");
  flags.preset.clear();
  flags.method = "lora";
  EXPECT_TRUE(make_spec(flags)->has_lora());
}

TEST(JobSpecTest, EveryMethodHasAFlagAndItsFieldsAreSet) {
  SpecFlags flags;
  flags.method = "lora";
  flags.sets = {"lora.r=4", "lora.target_modules=q_proj,down_proj"};
  const auto lora = make_spec(flags);
  ASSERT_TRUE(lora.ok()) << lora.status().to_string();
  EXPECT_EQ(lora->lora().r(), 4);
  EXPECT_EQ(lora->lora().target_modules_size(), 2);
  flags.method = "adapter";
  flags.sets = {"adapter.activation=gelu"};
  EXPECT_EQ(make_spec(flags)->adapter().activation(), v1::AdapterMethod::ACTIVATION_GELU);
  flags.method = "full";
  flags.sets = {};
  EXPECT_TRUE(make_spec(flags)->has_full());
  flags.method = "dex";
  flags.sets = {"dex.train=lora+dex"};  // as artefacts and method.md write it
  EXPECT_EQ(make_spec(flags)->dex().train(), v1::DexMethod::TRAIN_LORA_DEX);
}

TEST(JobSpecTest, TheMethodsAreTheMembersOfTheOneof) {
  const auto& oneof = *v1::FineTuningJobSpec::descriptor()->FindOneofByName("method");
  std::vector<std::string> members;
  for (int i = 0; i < oneof.field_count(); ++i) members.push_back(oneof.field(i)->name());
  EXPECT_THAT(members, ElementsAreArray(kMethods));
}

TEST(JobSpecTest, AFieldOfAnotherMethodDoesNotChangeTheMethod) {
  SpecFlags flags;
  flags.sets = {"lora.r=4"};  // without --method the job is a dex job
  EXPECT_THAT(make_spec(flags).status().message(), HasSubstr("without --method lora"));
  flags.sets = {"dex.lora.r=4"};
  EXPECT_EQ(make_spec(flags)->dex().lora().r(), 4u);
}

TEST(JobSpecTest, APresetIsDexsOrItsControlsAndNoRivals) {
  SpecFlags flags;
  flags.method = "kvo_only";
  EXPECT_TRUE(make_spec(flags)->has_kvo_only());
  EXPECT_FALSE(make_spec(flags)->kvo_only().has_preset());
  flags.preset = "code";
  EXPECT_EQ(make_spec(flags)->kvo_only().preset(), "code");
  flags.method = "lora";
  EXPECT_EQ(make_spec(flags).status().reason(), "UNUSED_FIELD");
  EXPECT_THAT(make_spec(flags).status().message(), HasSubstr("for dex and kvo_only"));
  flags.method = "distil";
  EXPECT_THAT(make_spec(flags).status().message(),
              HasSubstr("\"distil\" is not one of dex, kvo_only, lora, adapter, full, diff"));
}

TEST(PromoteIfTest, IsATaskAMetricAndALimit) {
  const auto gate = parse_gate("held_out.loss<=-0.05");
  ASSERT_TRUE(gate.ok());
  EXPECT_EQ(gate->task(), "held_out");
  EXPECT_EQ(gate->metric(), "loss");
  EXPECT_EQ(gate->op(), v1::Gate::OP_LE);
  EXPECT_EQ(gate->threshold(), -0.05);
  EXPECT_FALSE(gate->has_against());  // the server's default
  EXPECT_EQ(parse_gate("branch_effect.value>=2e-2")->op(), v1::Gate::OP_GE);
  for (const char* bad : {"", "held_out.loss", "held_out<=0", ".loss<=0", "held_out.<=0",
                          "held_out.loss<=", "held_out.loss<=low", "held_out.loss<=nan"}) {
    EXPECT_EQ(parse_gate(bad).status().reason(), "INVALID_FIELD") << bad;
    EXPECT_THAT(parse_gate(bad).status().message(), HasSubstr("--promote-if")) << bad;
  }
}

TEST(PromoteIfTest, ATaskHasItsFileItsOptionsAndItsDims) {
  const auto plain = parse_gate("perplexity(wiki, old.test.raw).loss<=0");
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_FALSE(plain->has_task());  // its evaluation says it
  EXPECT_EQ(plain->metric(), "loss");
  EXPECT_EQ(plain->evaluation().perplexity().file(), "wiki, old.test.raw");
  EXPECT_TRUE(plain->dims().empty());

  const auto needles = parse_gate(
      "multi-needle(./a=b/book (1).txt, lengths=1024,2048, chat = true)"
      ".accuracy[length=2048, depth=50]>=-0.05");
  ASSERT_TRUE(needles.ok()) << needles.status().to_string();
  const auto& task = needles->evaluation().multi_needle();
  EXPECT_EQ(task.file(), "./a=b/book (1).txt");
  ASSERT_EQ(task.lengths_size(), 2);
  EXPECT_EQ(task.lengths(1), 2048u);
  EXPECT_TRUE(task.chat());
  EXPECT_EQ(needles->metric(), "accuracy");
  EXPECT_EQ(needles->op(), v1::Gate::OP_GE);
  EXPECT_EQ(needles->threshold(), -0.05);
  ASSERT_EQ(needles->dims_size(), 2);
  EXPECT_EQ(needles->dims().at("length"), "2048");
  EXPECT_EQ(needles->dims().at("depth"), "50");

  // Needles have a text of their own.
  const auto shipped = parse_gate("multi_needle(lengths=1024, 2048, n_queries=1).accuracy>=0");
  ASSERT_TRUE(shipped.ok()) << shipped.status().to_string();
  EXPECT_EQ(shipped->evaluation().multi_needle().file(), "");
  EXPECT_EQ(shipped->evaluation().multi_needle().lengths_size(), 2);
  EXPECT_EQ(shipped->evaluation().multi_needle().n_queries(), 1U);
  EXPECT_TRUE(parse_gate("multi_needle().accuracy>=0").ok());
  const auto misspelt = parse_gate("multi_needle(length=1024).accuracy>=0").status();
  EXPECT_EQ(misspelt.reason(), "UNKNOWN_FIELD") << "no file of that name";
  EXPECT_THAT(misspelt.message(), HasSubstr("lengths"));
  EXPECT_EQ(parse_gate("multi_needle(file=a=b.txt, chat=true).accuracy>=0")
                ->evaluation()
                .multi_needle()
                .file(),
            "a=b.txt");
  EXPECT_EQ(parse_gate("perplexity(length=1024).loss<=0")->evaluation().perplexity().file(),
            "length=1024")
      << "of a task that has a file";

  for (const char* bad :
       {"perplexity().loss<=0", "perplexity(f)loss<=0", "perplexity(f.loss<=0", "perplexity(f).<=0",
        "held_out(f).loss<=0", "multi_needle(f).accuracy[length]>=0",
        "multi_needle(f).accuracy[length=1>=0"}) {
    EXPECT_EQ(parse_gate(bad).status().reason(), "INVALID_FIELD") << bad;
    EXPECT_THAT(parse_gate(bad).status().message(), HasSubstr("--promote-if")) << bad;
  }
  const auto option = parse_gate("perplexity(f, strid=9).loss<=0").status();
  EXPECT_EQ(option.reason(), "UNKNOWN_FIELD");
  EXPECT_THAT(option.message(), HasSubstr("stride"));
}

// As `dexctl study --task` takes it.
TEST(PromoteIfTest, ATaskMayStandByItself) {
  const auto choices = parse_task(" multiple-choice(mmlu (2).csv, samples=500)");
  ASSERT_TRUE(choices.ok()) << choices.status().to_string();
  EXPECT_EQ(choices->multiple_choice().file(), "mmlu (2).csv");
  EXPECT_EQ(choices->multiple_choice().samples(), 500);
  EXPECT_TRUE(parse_task("multi_needle()").ok());
  for (const char* bad : {"", "multiple_choice", "multiple_choice()", "held_out(f)", "perplexity(f",
                          "perplexity(f).loss<=0"}) {
    EXPECT_EQ(parse_task(bad).status().reason(), "INVALID_FIELD") << bad;
    EXPECT_THAT(parse_task(bad).status().message(), HasSubstr("--task")) << bad;
  }
  EXPECT_EQ(parse_task("perplexity(f, strid=9)").status().reason(), "UNKNOWN_FIELD");
}

TEST(PromoteIfTest, SaysWhatItIsAgainst) {
  const auto against = [](const std::string& other) {
    const auto gate = parse_gate("perplexity(a against b.txt).loss<=-0.5 against " + other);
    EXPECT_TRUE(gate.ok()) << gate.status().to_string();
    EXPECT_EQ(gate->threshold(), -0.5);
    EXPECT_EQ(gate->evaluation().perplexity().file(), "a against b.txt");
    return *gate;
  };
  EXPECT_EQ(against("base").against(), v1::Gate::AGAINST_BASE);
  EXPECT_EQ(against("absolute").against(), v1::Gate::AGAINST_ABSOLUTE);
  EXPECT_FALSE(against("base").has_adapter());
  EXPECT_EQ(against("ft:m:t:old:01").against(), v1::Gate::AGAINST_ADAPTER);
  EXPECT_EQ(against("ft:m:t:old:01").adapter(), "ft:m:t:old:01");
  EXPECT_EQ(against("adapter").against(), v1::Gate::AGAINST_ADAPTER);
  EXPECT_FALSE(against("adapter").has_adapter()) << "the one that the job goes on from";
  for (const char* control : {"kvo_only ft:m:t:k:01", "kvo-only  ft:m:t:k:01 "}) {
    EXPECT_EQ(against(control).against(), v1::Gate::AGAINST_KVO_ONLY) << control;
    EXPECT_EQ(against(control).adapter(), "ft:m:t:k:01") << control;
  }
  for (const char* bad : {"perplexity(f).loss<=0 against ", "perplexity(f).loss<=0 against",
                          "perplexity(f).loss<=0 ft:a", "perplexity(f).loss<=0 against night",
                          "perplexity(f).loss<=0 against base ft:m:t::01"}) {
    EXPECT_EQ(parse_gate(bad).status().reason(), "INVALID_FIELD") << bad;
    EXPECT_THAT(parse_gate(bad).status().message(), HasSubstr("--promote-if")) << bad;
  }
}

TEST(PromoteIfTest, FlagsMakeGatesAndTheGuard) {
  SpecFlags flags;
  flags.gates = {"held_out.loss<=0", "base_guard.kl<=0.1"};
  flags.kl_max = "0.2";
  const auto spec = make_spec(flags);
  ASSERT_TRUE(spec.ok());
  ASSERT_EQ(spec->gates_size(), 2);
  EXPECT_EQ(spec->gates(1).task(), "base_guard");
  EXPECT_EQ(spec->watchdog().base_guard().kl_max(), 0.2);
  flags.gates = {"better"};
  EXPECT_FALSE(make_spec(flags).ok());
}

}  // namespace
}  // namespace dex::cli
