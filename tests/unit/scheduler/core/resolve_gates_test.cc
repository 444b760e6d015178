#include <gmock/gmock.h>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::HasSubstr;

TEST(ResolveTest, TheBaseGuardIsOffAndItsFieldsNeedALimit) {
  auto in = input();
  auto config = resolved(in).config;
  EXPECT_EQ(config.spec().watchdog().base_guard().kl_max(), 0);
  EXPECT_FALSE(config.spec().watchdog().base_guard().has_every_evals());  // without effect
  auto& guard = *in.spec.mutable_watchdog()->mutable_base_guard();
  guard.set_every_evals(3);
  EXPECT_EQ(refused(in).reason(), "UNUSED_FIELD");
  EXPECT_THAT(refused(in).message(), HasSubstr("watchdog.base_guard.every_evals"));
  guard.set_kl_max(0.1);
  config = resolved(in).config;
  EXPECT_EQ(config.spec().watchdog().base_guard().every_evals(), 3u);
  EXPECT_EQ(config.spec().watchdog().base_guard().on_trip(), v1::BaseGuardOptions::ON_TRIP_FAIL);
  EXPECT_EQ(config.sources().at("watchdog.base_guard.on_trip"), "DEFAULT (ours)");
  in.spec.set_validation_split(0);
  EXPECT_EQ(refused(in).reason(), "CONFLICTING_FIELDS");
  EXPECT_THAT(refused(in).message(), HasSubstr("base_guard.kl_max needs held-out rows"));
  guard.set_kl_max(101);
  EXPECT_EQ(refused(in).reason(), "VALUE_OUT_OF_RANGE");
}

v1::Gate& add_gate(ResolveInput& in, const std::string& task, const std::string& metric) {
  v1::Gate& gate = *in.spec.add_gates();
  gate.set_task(task);
  gate.set_metric(metric);
  gate.set_op(v1::Gate::OP_LE);
  gate.set_threshold(0.5);
  return gate;
}

TEST(ResolveTest, GatesGetTheirDefaults) {
  auto in = input();
  add_gate(in, "held_out", "loss");
  add_gate(in, "branch_effect", "ce_delta").set_name("delta");
  add_gate(in, "base_guard", "kl").set_on_fail(v1::Gate::ON_FAIL_FAIL_JOB);
  in.spec.mutable_watchdog()->mutable_base_guard()->set_probe_file("file-9");  // for the gate
  const auto config = resolved(in).config;
  const auto& gates = config.spec().gates();
  ASSERT_EQ(gates.size(), 3);
  EXPECT_EQ(gates[0].name(), "held_out.loss");
  EXPECT_EQ(gates[0].against(), v1::Gate::AGAINST_BASE);
  EXPECT_EQ(gates[0].use(), v1::Gate::USE_BOUND);
  EXPECT_EQ(gates[0].on_fail(), v1::Gate::ON_FAIL_BLOCK_ALIAS);
  EXPECT_EQ(gates[1].name(), "delta");
  EXPECT_EQ(gates[1].against(), v1::Gate::AGAINST_ABSOLUTE);
  EXPECT_EQ(gates[1].use(), v1::Gate::USE_POINT);
  EXPECT_EQ(gates[2].use(), v1::Gate::USE_BOUND);
  EXPECT_EQ(gates[2].on_fail(), v1::Gate::ON_FAIL_FAIL_JOB);
  EXPECT_EQ(config.sources().at("gates"), "USER");
  // Resolving what was resolved changes nothing.
  in.spec = config.spec();
  EXPECT_EQ(resolved(in).config.spec().SerializeAsString(), config.spec().SerializeAsString());
}

TEST(ResolveTest, GatesOnWhatIsNotThereAreRefused) {
  const auto words = [](const std::string& task, const std::string& metric, auto change) {
    auto in = input();
    change(in, add_gate(in, task, metric));
    const auto status = refused(in);
    return status.reason() + ": " + status.message();
  };
  EXPECT_THAT(words("held_in", "loss", [](auto&, auto&) {}),
              HasSubstr("INVALID_FIELD: gates[0].metric \"held_in loss\" is not"));
  EXPECT_THAT(words("perplexity", "loss", [](auto&, auto&) {}),
              HasSubstr("INVALID_FIELD: gates[0].evaluation is missing"));
  EXPECT_THAT(words("held_out", "loss", [](auto&, auto& gate) { gate.clear_threshold(); }),
              HasSubstr("gates[0].threshold must be a finite number"));
  EXPECT_THAT(words("held_out", "loss", [](auto&, auto& gate) { gate.clear_op(); }),
              HasSubstr("gates[0].op must be one of OP_GE, OP_LE"));
  EXPECT_THAT(words("held_out", "loss", [](auto&, auto& gate) { gate.set_name("A b"); }),
              HasSubstr("gates[0].name must be"));
  EXPECT_THAT(words("held_out", "loss", [](auto& in, auto&) { add_gate(in, "held_out", "loss"); }),
              HasSubstr("gates[1].name \"held_out.loss\" is given twice"));
  EXPECT_THAT(words("base_guard", "kl",
                    [](auto&, auto& gate) { gate.set_against(v1::Gate::AGAINST_BASE); }),
              HasSubstr("CONFLICTING_FIELDS: gates[0].against"));
  EXPECT_THAT(
      words("branch_effect", "value", [](auto&, auto& gate) { gate.set_use(v1::Gate::USE_BOUND); }),
      HasSubstr("gates[0].use branch_effect value has no interval"));
  EXPECT_THAT(words("branch_effect", "value", [](auto& in, auto&) { in.spec.mutable_lora(); }),
              HasSubstr("gates[0].task branch_effect needs method dex"));
  EXPECT_THAT(words("held_out", "loss", [](auto& in, auto&) { in.spec.set_validation_split(0); }),
              HasSubstr("gates[0].task needs held-out rows"));
  // A probe that nothing uses.
  EXPECT_THAT(words("held_out", "loss",
                    [](auto& in, auto&) {
                      in.spec.mutable_watchdog()->mutable_base_guard()->set_probe_file("file-9");
                    }),
              HasSubstr("UNUSED_FIELD: watchdog.base_guard.probe_file"));
}

// A gate on the loss over a file.
v1::Gate& add_task_gate(ResolveInput& in, const std::string& file = "file-9") {
  v1::Gate& gate = *in.spec.add_gates();
  gate.set_metric("loss");
  gate.set_op(v1::Gate::OP_LE);
  gate.set_threshold(0);
  gate.mutable_evaluation()->mutable_perplexity()->set_file(file);
  return gate;
}

TEST(ResolveTest, TasksOfGatesAreFilledAndTheirFilesNamed) {
  auto in = input();
  add_task_gate(in);
  add_task_gate(in, "file-8");
  in.gate_files = {{"file-9", {"wiki.test.raw", 4000}}, {"file-8", {"rows.jsonl", 4000}}};
  const auto config = resolved(in).config;
  const auto& gates = config.spec().gates();
  EXPECT_EQ(gates[0].task(), "perplexity");
  EXPECT_EQ(gates[0].name(), "perplexity.loss");
  EXPECT_EQ(gates[1].name(), "perplexity.loss-2");
  EXPECT_EQ(gates[0].against(), v1::Gate::AGAINST_BASE);
  EXPECT_EQ(gates[0].evaluation().perplexity().format(), v1::TEXT_FORMAT_RAW);
  EXPECT_EQ(gates[1].evaluation().perplexity().format(), v1::TEXT_FORMAT_JSONL);
  const auto files = gate_files(config.spec());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].field, "gates[1].evaluation.perplexity.file");
  EXPECT_EQ(files[1].id, "file-8");
  in.spec = config.spec();
  EXPECT_EQ(resolved(in).config.spec().SerializeAsString(), config.spec().SerializeAsString());
}

// An evaluation's own rules, under the names of the job's spec.
TEST(ResolveTest, TasksOfGatesThatCannotBeAreRefused) {
  const auto words = [](auto change) {
    auto in = input();
    change(in, add_task_gate(in));
    const auto status = refused(in);
    return status.reason() + ": " + status.message();
  };
  EXPECT_THAT(words([](auto&, auto& gate) { gate.set_metric("acc"); }),
              HasSubstr("INVALID_FIELD: gates[0].metric \"acc\" is not a metric of perplexity"));
  EXPECT_THAT(words([](auto&, auto& gate) {
                gate.mutable_evaluation()->mutable_perplexity()->clear_file();
              }),
              HasSubstr("MISSING_FIELD: gates[0].evaluation.perplexity.file is missing"));
  EXPECT_THAT(words([](auto&, auto& gate) {
                gate.mutable_evaluation()->mutable_perplexity()->set_context_length(8193);
              }),
              HasSubstr("VALUE_OUT_OF_RANGE: gates[0].evaluation.perplexity.context_length"));
}

// Methods that publish a whole model are measured beside their base as adapters are.
TEST(ResolveTest, TasksOfGatesGoWithEveryMethod) {
  for (const char* method : {"full", "diff", "full+dex"}) {
    auto in = input();
    add_task_gate(in);
    in.gate_files = {{"file-9", {"wiki.test.raw", 4000}}};
    if (method == std::string("full")) in.spec.mutable_full();
    if (method == std::string("diff")) in.spec.mutable_diff();
    if (method == std::string("full+dex"))
      in.spec.mutable_dex()->set_train(v1::DexMethod::TRAIN_FULL_DEX);
    EXPECT_TRUE(resolve(in).ok()) << method << ": " << resolve(in).status().to_string();
  }
}

// 2 FLOP a parameter and token, each of 1,000 tokens in two windows, base and adapter: both gates
// ask for one task.
TEST(ResolveTest, TasksOfGatesCountOnceInTheEstimate) {
  auto in = input();
  const double plain = resolved(in).gate_flops;
  EXPECT_EQ(plain, 0);
  in.gate_files = {{"file-9", {"wiki.test.raw", 4000}}};
  add_task_gate(in);
  add_task_gate(in).set_metric("perplexity");
  EXPECT_DOUBLE_EQ(resolved(in).gate_flops,
                   2.0 * static_cast<double>(in.model.parameters()) * 2 * 1000 * 2);
}

}  // namespace
}  // namespace dex::core
