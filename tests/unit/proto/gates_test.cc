// Gates on tasks of EvaluationService: what they may name, and what they say of rows. Figures are
// worked out by hand.
#include "proto/gates.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <cmath>
#include <limits>

#include "proto/gate_tasks.h"

namespace dex::proto {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Message>
Message parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// At most 0, unless `text` says otherwise.
v1::FineTuningJobSpec with_gate(const std::string& text) {
  auto gate = parsed<v1::Gate>(text);
  if (!gate.has_op()) gate.set_op(v1::Gate::OP_LE);
  if (!gate.has_threshold()) gate.set_threshold(0);
  v1::FineTuningJobSpec spec;
  *spec.add_gates() = gate;
  return spec;
}

v1::Gate filled(const std::string& gate) {
  auto spec = with_gate(gate);
  fill_gates(spec);
  return spec.gates(0);
}

// "gates[0].dims of perplexity loss may be …", one a fault.
std::vector<std::string> faults(const std::string& gate) {
  std::vector<std::string> out;
  for (const BadValue& bad : bad_gates(with_gate(gate))) out.push_back(bad.path + " " + bad.what);
  return out;
}

// An adapter's rows of perplexity: over everything, and of one language.
v1::EvaluationReport report() {
  return parsed<v1::EvaluationReport>(R"(results { task: "perplexity"
    rows { subject: "base" metric: "loss" value: 3.0 low: 2.9 high: 3.1 n: 8 }
    rows { subject: "adapter" metric: "loss" value: 2.5 low: 2.4 high: 2.6 n: 8
           delta: -0.5 delta_low: -0.75 delta_high: -0.25 }
    rows { subject: "adapter" metric: "loss" value: 2.0 n: 1 delta: 0.125
           dims { key: "language" value: "cy" } } })");
}

TEST(TaskGatesTest, GetTheirDefaults) {
  const auto gate = filled(R"(metric: "loss" evaluation { perplexity { file: "f" } })");
  EXPECT_EQ(gate.task(), "perplexity");
  EXPECT_EQ(gate.name(), "perplexity.loss");
  EXPECT_EQ(gate.against(), v1::Gate::AGAINST_BASE);
  EXPECT_EQ(gate.use(), v1::Gate::USE_BOUND);
  EXPECT_EQ(gate.on_fail(), v1::Gate::ON_FAIL_BLOCK_ALIAS);
  EXPECT_EQ(gate_condition(gate), "perplexity.loss - base <= 0, high end");
  EXPECT_EQ(gate_condition(filled(R"(metric: "accuracy" against: AGAINST_ABSOLUTE use: USE_POINT
    evaluation { multi_needle { file: "f" } }
    dims { key: "length" value: "2048" } dims { key: "depth" value: "50" })")),
            "multi_needle.accuracy[depth=50,length=2048] <= 0");
}

// The same metric of two files is what somebody would ask; of one figure of the trainer it is not.
TEST(TaskGatesTest, EqualOnesAreNumberedAndGivenNamesStandAlone) {
  auto spec = parsed<v1::FineTuningJobSpec>(R"(
    gates { metric: "loss" op: OP_LE threshold: 0 evaluation { perplexity { file: "a" } } }
    gates { metric: "loss" op: OP_LE threshold: 0 evaluation { perplexity { file: "b" } } }
    gates { metric: "loss" op: OP_LE threshold: 0 evaluation { perplexity { file: "c" } }
            name: "perplexity.loss-2" })");
  EXPECT_TRUE(bad_gates(spec).empty());
  fill_gates(spec);
  EXPECT_EQ(spec.gates(0).name(), "perplexity.loss");
  EXPECT_EQ(spec.gates(1).name(), "perplexity.loss-3");
  EXPECT_EQ(spec.gates(2).name(), "perplexity.loss-2");
  const auto again = spec.SerializeAsString();
  fill_gates(spec);
  EXPECT_EQ(spec.SerializeAsString(), again);
  spec.mutable_gates(0)->set_name("x");
  spec.mutable_gates(1)->set_name("x");
  ASSERT_EQ(bad_gates(spec).size(), 1u);
  EXPECT_EQ(bad_gates(spec)[0].path, "gates[1].name");
}

TEST(TaskGatesTest, WhatATaskDoesNotHaveIsRefused) {
  EXPECT_THAT(faults(R"(metric: "loss" evaluation { perplexity { file: "f" } })"), ElementsAre());
  EXPECT_THAT(faults(R"(metric: "acc" evaluation { perplexity { file: "f" } })"),
              ElementsAre("gates[0].metric \"acc\" is not a metric of perplexity: use one of loss, "
                          "perplexity, bits_per_byte"));
  EXPECT_THAT(faults(R"(task: "perplexity" metric: "loss")"),
              ElementsAre(HasSubstr("gates[0].evaluation is missing: perplexity needs its file")));
  EXPECT_THAT(faults(R"(task: "icl" metric: "loss" evaluation { perplexity { file: "f" } })"),
              ElementsAre(HasSubstr("gates[0].task must be perplexity like evaluation")));
  EXPECT_THAT(faults(R"(metric: "loss" evaluation { instructions { file: "f" } })"),
              ElementsAre("gates[0].evaluation can't be instructions, which measures nothing"));
  EXPECT_THAT(
      faults(R"(metric: "loss" evaluation { })"),
      ElementsAre("gates[0].evaluation must be one of perplexity, multi_needle, multiple_choice, "
                  "icl, answers, head_analysis"));
  EXPECT_THAT(faults(R"(task: "held_out" metric: "loss" dims { key: "tag" value: "a" })"),
              ElementsAre("gates[0].dims belong to a gate with an evaluation"));
}

TEST(TaskGatesTest, OptionsThatLeaveOneRowLeaveOneMetric) {
  const std::string choice = R"(evaluation { multiple_choice { file: "f" score: SCORE_SUM } } )";
  EXPECT_THAT(faults(choice + R"(metric: "acc")"), ElementsAre());
  EXPECT_THAT(faults(choice + R"(metric: "acc_norm")"),
              ElementsAre("gates[0].metric \"acc_norm\" is no row of this multiple_choice, whose "
                          "options leave acc"));
  const std::string answers = R"(evaluation { answers { file: "f" match: MATCH_F1 } } )";
  EXPECT_THAT(faults(answers + R"(metric: "f1")"), ElementsAre());
  EXPECT_THAT(faults(answers + R"(metric: "unseen_strings_per_100_words")"), ElementsAre());
  EXPECT_THAT(faults(answers + R"(metric: "exact")"), ElementsAre(HasSubstr("options leave f1")));
}

TEST(TaskGatesTest, DimsAreThoseThatTheMetricHas) {
  const std::string needles = R"(metric: "accuracy" evaluation { multi_needle { file: "f" } } )";
  const auto dim = [](const std::string& key) {
    return "dims { key: \"" + key + "\" value: \"25\" } ";
  };
  EXPECT_THAT(faults(needles), ElementsAre());
  EXPECT_THAT(faults(needles + dim("length")), ElementsAre());
  EXPECT_THAT(faults(needles + dim("length") + dim("depth")), ElementsAre());
  EXPECT_THAT(faults(needles + dim("depth")),
              ElementsAre("gates[0].dims of multi_needle accuracy may be none, or length, or depth "
                          "and length; got depth"));
  EXPECT_THAT(faults(R"(metric: "accuracy" evaluation { icl { file: "f" } })"),
              ElementsAre("gates[0].dims of icl accuracy may be shots; got none"));
  EXPECT_THAT(
      faults(R"(metric: "acc" evaluation { multiple_choice { file: "f" } })" + dim("subject")),
      ElementsAre());
  EXPECT_THAT(faults(R"(metric: "loss" evaluation { perplexity { file: "f" } } )" + dim("tag")),
              ElementsAre("gates[0].dims tag needs evaluation.perplexity.group_by to have it"));
  EXPECT_THAT(faults(R"(metric: "loss" evaluation { perplexity { file: "f" group_by: "tag" } } )" +
                     dim("tag")),
              ElementsAre());
}

// What would be missed only after hours of training is refused before.
TEST(TaskGatesTest, RowsThatTheOptionsRuleOutAreRefused) {
  const auto dim = [](const std::string& key, const std::string& value) {
    return "dims { key: \"" + key + "\" value: \"" + value + "\" } ";
  };
  const std::string needles =
      R"(metric: "accuracy" evaluation { multi_needle { file: "f" lengths: 512 lengths: 1024 } } )";
  EXPECT_THAT(faults(needles + dim("length", "1024") + dim("depth", "75")), ElementsAre());
  EXPECT_THAT(faults(needles + dim("length", "2048")),
              ElementsAre("gates[0].dims length must be one that the evaluation measures, 512, "
                          "1024, got \"2048\""));
  EXPECT_THAT(faults(needles + dim("length", "512") + dim("depth", "30")),
              ElementsAre(HasSubstr("depth must be one that the evaluation measures, 0, 25, 50")));
  EXPECT_THAT(faults(R"(metric: "accuracy" evaluation { multi_needle { file: "f" needle_counts: 1
                        needle_counts: 4 } })"),
              ElementsAre("gates[0].evaluation.multi_needle.needle_counts can't be several in a "
                          "gate, which judges one figure: give n_needles"));
  const std::string icl = R"(metric: "order_spread" evaluation { icl { file: "f" n_orders: 1 } } )";
  EXPECT_THAT(faults(R"(metric: "accuracy" evaluation { icl { file: "f" } } )" + dim("shots", "8")),
              ElementsAre(HasSubstr("shots must be one that the evaluation measures, 0, 4, 16")));
  EXPECT_THAT(faults(icl + dim("shots", "4")), ElementsAre(HasSubstr("needs two orders")));
  EXPECT_THAT(
      faults(R"(metric: "order_spread" evaluation { icl { file: "f" } } )" + dim("shots", "4")),
      ElementsAre());
  EXPECT_THAT(faults(R"(metric: "hessian_eigenvalue" evaluation { head_analysis { file: "f" } })"),
              ElementsAre("gates[0].metric \"hessian_eigenvalue\" needs METRIC_HESSIAN in "
                          "evaluation.head_analysis.metrics, which are all but that one"));
  const std::string entropy =
      R"(evaluation { head_analysis { file: "f" metrics: METRIC_ENTROPY } } )";
  EXPECT_THAT(faults(entropy + R"(metric: "entropy")"), ElementsAre());
  EXPECT_THAT(faults(entropy + R"(metric: "negative_mass")"),
              ElementsAre("gates[0].metric \"negative_mass\" needs METRIC_SPARSITY in "
                          "evaluation.head_analysis.metrics"));
}

// in_context.cc's arrangements, by their names.
TEST(TaskGatesTest, OrdersAreThoseThatTheExamplesGetWithTheirNumberOfShots) {
  const auto refusals = [](const std::string& options, const std::string& shots,
                           const std::string& order) {
    return faults("metric: \"accuracy_of_order\" evaluation { icl { file: \"f\" " + options +
                  " } } dims { key: \"shots\" value: \"" + shots +
                  "\" } dims { key: \"order\" value: \"" + order + "\" }");
  };
  EXPECT_THAT(refusals("", "4", "random 3"), ElementsAre());
  EXPECT_THAT(refusals("", "4", "random 4"),
              ElementsAre("gates[0].dims order must be one that the evaluation measures, random 1; "
                          "random 2; random 3, got \"random 4\""));
  EXPECT_THAT(refusals("n_orders: 4", "4", "random 4"), ElementsAre());
  EXPECT_THAT(refusals("", "4", "by class"), ElementsAre(HasSubstr("got \"by class\"")));
  EXPECT_THAT(refusals("order: ORDER_BOTH", "4", "by class, last first"), ElementsAre());
  EXPECT_THAT(refusals("order: ORDER_BOTH", "4", "random 2"), ElementsAre());
  EXPECT_THAT(refusals("order: ORDER_BY_CLASS", "4", "by class"), ElementsAre());
  EXPECT_THAT(refusals("order: ORDER_BY_CLASS", "4", "random 1"),
              ElementsAre(HasSubstr("measures, by class; by class, last first, got")));
  EXPECT_THAT(refusals("order: ORDER_BY_CLASS", "0", "random 1"), ElementsAre());
  EXPECT_THAT(refusals("n_orders: 5", "0", "random 2"), ElementsAre(HasSubstr("random 1, got")));
}

TEST(TaskGatesTest, WhatOnlyAnAdapterHasIsNotHeldAgainstTheBase) {
  const std::string heads = R"(evaluation { head_analysis { file: "f" } } )";
  EXPECT_EQ(filled(heads + R"(metric: "cka")").against(), v1::Gate::AGAINST_BASE);
  EXPECT_EQ(filled(heads + R"(metric: "negative_share")").against(), v1::Gate::AGAINST_ABSOLUTE);
  const std::string taken = heads + R"(metric: "directions_below_zero" )";
  EXPECT_EQ(filled(taken).against(), v1::Gate::AGAINST_ABSOLUTE);
  EXPECT_THAT(faults(taken + "against: AGAINST_BASE"),
              ElementsAre("gates[0].against must be AGAINST_ABSOLUTE: the base has no branch"));
  auto spec = with_gate(taken);
  EXPECT_TRUE(gate_conflicts(spec).empty());
  spec.mutable_lora();
  ASSERT_EQ(gate_conflicts(spec).size(), 1u);
  EXPECT_EQ(gate_conflicts(spec)[0].path, "gates[0].metric");
}

// Whole models are measured beside their base; but what method diff makes has more heads.
TEST(TaskGatesTest, OnlyHeadsOfMethodDiffHaveNoCounterpartInTheBase) {
  for (const std::string method : {"full { }", "diff { }", "dex { train: TRAIN_FULL_DEX }"}) {
    for (const std::string task :
         {R"(perplexity { file: "f" })", R"(head_analysis { file: "f" })"}) {
      auto spec = with_gate(R"(metric: "loss" evaluation { )" + task + " }");
      EXPECT_TRUE(gate_conflicts(spec).empty());
      spec.MergeFrom(parsed<v1::FineTuningJobSpec>(method));
      const auto bad = gate_conflicts(spec);
      const bool none = method == "diff { }" && task.starts_with("head_analysis");
      ASSERT_EQ(bad.size(), none ? 1u : 0u) << method << task;
      if (!none) continue;
      EXPECT_EQ(bad[0].path, "gates[0].evaluation");
      EXPECT_THAT(bad[0].what, HasSubstr("other heads than its base"));
    }
  }
}

TEST(OtherAdapterTest, AnAdaptersNameIsEnoughAndTheOneGoneOnFromNeedsNone) {
  const std::string loss = R"(metric: "loss" evaluation { perplexity { file: "f" } } )";
  const auto named = filled(loss + R"(adapter: "ft:m:t:old:01")");
  EXPECT_EQ(named.against(), v1::Gate::AGAINST_ADAPTER);
  EXPECT_EQ(gate_condition(named), "perplexity.loss - ft:m:t:old:01 <= 0, high end");
  EXPECT_EQ(gate_condition(filled(loss + R"(against: AGAINST_KVO_ONLY adapter: "ft:m:t:k:01")")),
            "perplexity.loss - kvo_only ft:m:t:k:01 <= 0, high end");
  auto spec = with_gate(loss + "against: AGAINST_ADAPTER");
  ASSERT_EQ(bad_gates(spec).size(), 1u);
  EXPECT_EQ(bad_gates(spec)[0].path, "gates[0].adapter");
  spec.set_model("ft:m:t:start:01");
  EXPECT_TRUE(bad_gates(spec).empty());
  fill_gates(spec);
  EXPECT_EQ(spec.gates(0).adapter(), "ft:m:t:start:01");
  spec.mutable_gates(0)->clear_adapter();
  spec.mutable_gates(0)->set_against(v1::Gate::AGAINST_KVO_ONLY);
  ASSERT_EQ(bad_gates(spec).size(), 1u) << "what a job goes on from is no control";
}

TEST(OtherAdapterTest, WhatHasNoMeaningIsRefused) {
  const std::string loss = R"(metric: "loss" evaluation { perplexity { file: "f" } } )";
  EXPECT_THAT(faults(loss + R"(against: AGAINST_BASE adapter: "ft:m:t::01")"),
              ElementsAre("gates[0].adapter has no effect without AGAINST_ADAPTER or "
                          "AGAINST_KVO_ONLY"));
  EXPECT_THAT(faults(loss + R"(against: AGAINST_ADAPTER adapter: "")"),
              ElementsAre("gates[0].adapter must be the id of an adapter"));
  EXPECT_THAT(faults(loss + "against: AGAINST_KVO_ONLY"),
              ElementsAre(HasSubstr("gates[0].adapter is missing: name the adapter of a job of "
                                    "method kvo_only")));
  EXPECT_THAT(
      faults(R"(task: "held_out" metric: "loss" against: AGAINST_ADAPTER adapter: "ft:m:t::01")"),
      ElementsAre(HasSubstr("gates[0].against needs an evaluation")));
  EXPECT_THAT(faults(R"(task: "held_out" metric: "loss" adapter: "ft:m:t::01")"),
              ElementsAre(HasSubstr("gates[0].adapter needs an evaluation")));
  EXPECT_THAT(faults(R"(metric: "directions_below_zero" evaluation { head_analysis { file: "f" } }
                        against: AGAINST_KVO_ONLY adapter: "ft:m:t::01")"),
              ElementsAre("gates[0].against must be AGAINST_ABSOLUTE: the control has no branch"));

  auto control = with_gate(loss + R"(against: AGAINST_KVO_ONLY adapter: "ft:m:t::01")");
  EXPECT_TRUE(gate_conflicts(control).empty());
  control.mutable_kvo_only();
  ASSERT_EQ(gate_conflicts(control).size(), 1u);
  EXPECT_EQ(gate_conflicts(control)[0].path, "gates[0].against");
  EXPECT_THAT(gate_conflicts(control)[0].what, HasSubstr("use AGAINST_ADAPTER"));
}

// An evaluation has four subjects.
TEST(OtherAdapterTest, TwoAreMeasuredBesideBaseAndResultEachOnce) {
  v1::FineTuningJobSpec spec;
  for (const char* adapter : {"ft:m:t:a:01", "ft:m:t:b:01", "ft:m:t:a:01"}) {
    *spec.add_gates() = with_gate(R"(metric: "loss" evaluation { perplexity { file: "f" } } )"
                                  R"(against: AGAINST_ADAPTER adapter: ")" +
                                  std::string(adapter) + "\"")
                            .gates(0);
  }
  EXPECT_TRUE(bad_gates(spec).empty());
  const auto evaluation = gate_evaluation(spec, "m", "ft:m:t::99");
  ASSERT_EQ(evaluation.subjects_size(), 4);
  EXPECT_EQ(evaluation.subjects(2).adapter(), "ft:m:t:a:01");
  EXPECT_EQ(evaluation.subjects(3).adapter(), "ft:m:t:b:01");
  EXPECT_EQ(evaluation.subjects(3).model(), "m");
  EXPECT_EQ(label_of_other(evaluation, spec.gates(1)), evaluation.subjects(3).label());
  EXPECT_EQ(label_of_other(evaluation, spec.gates(2)), evaluation.subjects(2).label());
  EXPECT_NE(evaluation.subjects(2).label(), evaluation.subjects(3).label());
  spec.mutable_gates(2)->set_adapter("ft:m:t:c:01");
  ASSERT_EQ(bad_gates(spec).size(), 1u);
  EXPECT_EQ(bad_gates(spec)[0].path, "gates[2].adapter");
  EXPECT_TRUE(bad_gates(spec)[0].out_of_range);
}

// The control is one run, and so is the job.
TEST(OtherAdapterTest, AVerdictAgainstTheControlSaysWhatItLeavesOut) {
  const auto gate = filled(R"(metric: "loss" against: AGAINST_KVO_ONLY adapter: "ft:m:t:k:01"
                              evaluation { perplexity { file: "f" } })");
  const auto found = judge_gate(gate, report().results(0).rows());
  EXPECT_TRUE(found.passed());
  EXPECT_EQ(gate_sentence(found),
            "gate perplexity.loss passed: perplexity.loss - kvo_only ft:m:t:k:01 <= 0, high end; "
            "-0.5 (-0.75 to -0.25) over 8 rows; of one seed each: how far seeds spread is not in "
            "it, dexctl study measures that");
  google::protobuf::RepeatedPtrField<v1::EvaluationRow> rows;
  rows.Add()->set_subject(kAdapterSubject);
  rows[0].set_metric("loss");
  EXPECT_THAT(judge_gate(gate, rows).not_measured(),
              HasSubstr("ft:m:t:k:01 and the adapter have no sample of it in common"));
}

TEST(TaskGatesTest, EqualTasksRunOnce) {
  const auto spec = parsed<v1::FineTuningJobSpec>(R"(
    gates { task: "held_out" metric: "loss" }
    gates { metric: "loss" evaluation { perplexity { file: "a" } } }
    gates { metric: "acc" evaluation { multiple_choice { file: "a" } } }
    gates { metric: "perplexity" evaluation { perplexity { file: "a" } } }
    gates { metric: "loss" evaluation { perplexity { file: "a" stride: 9 } } })");
  const auto evaluation = gate_evaluation(spec, "tiny", "ft:tiny:default::01");
  ASSERT_EQ(evaluation.subjects_size(), 2);
  EXPECT_EQ(evaluation.subjects(0).model(), "tiny");
  EXPECT_EQ(evaluation.subjects(0).adapter(), "");
  EXPECT_EQ(evaluation.subjects(1).adapter(), "ft:tiny:default::01");
  EXPECT_EQ(evaluation.tasks_size(), 3);
  std::vector<int> tasks;
  for (const auto& gate : spec.gates()) {
    if (gate.has_evaluation()) tasks.push_back(task_of_gate(evaluation, gate));
  }
  EXPECT_THAT(tasks, ElementsAre(0, 1, 0, 2));
  EXPECT_TRUE(has_task_gates(spec));
  EXPECT_FALSE(has_task_gates(parsed<v1::FineTuningJobSpec>(R"(gates { task: "held_out" })")));
}

v1::GateResult judged(const std::string& gate) {
  return judge_gate(
      filled(gate + R"( evaluation { perplexity { file: "f" group_by: "language" } })"),
      report().results(0).rows());
}

TEST(JudgeGateTest, TheDifferenceToTheBaseByItsPessimisticEnd) {
  const auto low = judged(R"(metric: "loss" threshold: -0.25)");
  EXPECT_TRUE(low.passed());
  EXPECT_EQ(low.value(), -0.5);
  EXPECT_EQ(low.low(), -0.75);
  EXPECT_EQ(low.high(), -0.25);
  EXPECT_EQ(low.n(), 8);
  EXPECT_EQ(low.on_fail(), "BLOCK_ALIAS");
  EXPECT_EQ(gate_sentence(low),
            "gate perplexity.loss passed: perplexity.loss - base <= -0.25, high end; "
            "-0.5 (-0.75 to -0.25) over 8 rows");
  EXPECT_FALSE(judged(R"(metric: "loss" threshold: -0.3)").passed());  // -0.25 > -0.3
  EXPECT_TRUE(judged(R"(metric: "loss" threshold: -0.3 use: USE_POINT)").passed());
  EXPECT_TRUE(judged(R"(metric: "loss" op: OP_GE threshold: -0.75)").passed());
  EXPECT_FALSE(judged(R"(metric: "loss" op: OP_GE threshold: -0.7)").passed());
}

TEST(JudgeGateTest, TheFigureItself) {
  const auto found = judged(R"(metric: "loss" threshold: 2.6 against: AGAINST_ABSOLUTE)");
  EXPECT_TRUE(found.passed());
  EXPECT_EQ(found.value(), 2.5);
  EXPECT_EQ(found.high(), 2.6);
  EXPECT_FALSE(judged(R"(metric: "loss" threshold: 2.59 against: AGAINST_ABSOLUTE)").passed());
}

TEST(JudgeGateTest, TheRowOfItsDimsAndNoOther) {
  const std::string welsh = R"(metric: "loss" dims { key: "language" value: "cy" } )";
  const auto point = judged(welsh + "threshold: 0.125 use: USE_POINT");
  EXPECT_TRUE(point.passed());
  EXPECT_EQ(point.value(), 0.125);
  EXPECT_FALSE(point.has_low());
  EXPECT_EQ(
      gate_sentence(point),
      "gate perplexity.loss passed: perplexity.loss[language=cy] - base <= 0.125; 0.125 over 1");
  const auto one = judged(welsh + "threshold: 9");
  EXPECT_FALSE(one.passed()) << "a bound that is not there";
  EXPECT_THAT(one.not_measured(), HasSubstr("one sample has no interval whose end could decide, "
                                            "give more data or use USE_POINT; the value is 0.125"));
  const auto missing =
      judged(R"(metric: "loss" threshold: 9 dims { key: "language" value: "gd" })");
  EXPECT_FALSE(missing.passed());
  EXPECT_TRUE(std::isnan(missing.value()));
  EXPECT_THAT(missing.not_measured(), HasSubstr("no such row"));
  EXPECT_THAT(gate_sentence(missing),
              HasSubstr("not passed: perplexity.loss[language=gd] - base <= "
                        "9, high end; not measured: the task gave no such row"));
}

// A bootstrap's interval over two to five samples is no reason to let a gate pass.
TEST(JudgeGateTest, AHandfulDecidesNoBound) {
  const auto asked = [](const std::string& gate, const std::string& row) {
    return judge_gate(
        filled("metric: \"loss\" " + gate + R"( evaluation { perplexity { file: "f" } })"),
        parsed<v1::EvaluationResult>("rows { subject: \"adapter\" metric: \"loss\" " + row + " }")
            .rows());
  };
  const auto difference = [](int n) {
    return "value: 2 delta: -0.5 delta_low: -0.75 delta_high: -0.25 n: " + std::to_string(n);
  };
  for (const int n : {2, 5}) {
    const auto few = asked("threshold: 0", difference(n));
    EXPECT_FALSE(few.passed()) << n;
    EXPECT_EQ(few.value(), -0.5);
    EXPECT_EQ(few.high(), -0.25);
    EXPECT_EQ(few.not_measured(),
              std::to_string(n) +
                  " rows or samples are too few for an interval whose end could "
                  "decide, 6 at least: give more data or use USE_POINT; the value "
                  "is -0.5 (-0.75 to -0.25)");
    EXPECT_THAT(gate_sentence(few), HasSubstr("high end; not measured: " + few.not_measured()));
    const auto point = asked("threshold: 0 use: USE_POINT", difference(n));
    EXPECT_TRUE(point.passed());
    EXPECT_THAT(gate_sentence(point), HasSubstr("fewer than 6 may agree by chance"));
  }
  EXPECT_TRUE(asked("threshold: 0", difference(6)).passed());
  // The figure itself: a share has Wilson's interval, which is as wide as few samples make it.
  const std::string figure = "value: 2 low: 1 high: 3 n: 5 interval: INTERVAL_";
  const std::string below = "threshold: 9 against: AGAINST_ABSOLUTE";
  EXPECT_TRUE(asked(below, figure + "WILSON").passed());
  EXPECT_FALSE(asked(below, figure + "BOOTSTRAP").passed());
}

TEST(JudgeGateTest, ThatAHandfulMayAgreeByChanceIsSaid) {
  auto found = judged(R"(metric: "loss" threshold: 0)");
  found.set_n(6);
  EXPECT_EQ(gate_caveat(found), "");
  found.set_n(5);
  EXPECT_THAT(gate_sentence(found),
              HasSubstr("over 5 rows; fewer than 6 may agree by chance, give the gate more data"));
  found.clear_low();  // judged by its value
  EXPECT_EQ(gate_caveat(found), "");
}

TEST(JudgeGateTest, WhatIsNoNumberHasNotPassed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(passes({.bound = false, .threshold = 1e9}, {.value = nan}));
  EXPECT_FALSE(passes({.at_least = true, .bound = false, .threshold = -1e9}, {.value = nan}));
  EXPECT_FALSE(passes({.threshold = 1e9}, {.value = 0, .low = nan, .high = nan}));
  EXPECT_TRUE(passes({.threshold = 1e9}, {.value = 0, .low = 0, .high = 0}));
}

}  // namespace
}  // namespace dex::proto
