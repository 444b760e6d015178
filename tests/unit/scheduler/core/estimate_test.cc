#include "scheduler/core/estimate.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/scheduler/core/smollm2.h"

namespace dex::core {
namespace {

ResolveInput estimate_input() {
  ResolveInput in;
  in.spec.set_model("smollm2-135m-instruct");
  in.spec.set_training_file("file-1");
  in.spec.mutable_hyperparameters()->set_max_steps(100);
  in.spec.mutable_hyperparameters()->set_max_seq_length(512);
  in.spec.mutable_hyperparameters()->set_batch_size(4);
  in.model = smollm2();
  in.training = {v1::FILE_FORMAT_TEXT, 400, 1'000'000, 20'000};
  return in;
}

Resolved resolved(std::string_view preset) {
  ResolveInput in = estimate_input();
  in.spec.mutable_dex()->set_preset(std::string(preset));
  return resolve(in).value();
}

// method.md §2.7: shared L(d²+1), K+V+O 16,588,800.
TEST(EstimateTest, CountsParametersExactly) {
  const auto paper = count_parameters(resolved("paper").config.spec(), smollm2());
  EXPECT_EQ(paper.added, 122'910);
  EXPECT_EQ(paper.trained, 122'910 + 16'588'800);
  const auto per_head = count_parameters(resolved("small").config.spec(), smollm2());
  EXPECT_EQ(per_head.added, 1'105'920 + 30 * 9);  // and a gate a head
}

// Of the layers that are adapted; what is below is neither trained nor kept for a backward pass.
TEST(EstimateTest, CountsFromTheFirstLayer) {
  const auto of = [](uint32_t first_layer) {
    ResolveInput in = estimate_input();
    in.spec.mutable_dex()->set_preset("paper");
    if (first_layer > 0) in.spec.mutable_hyperparameters()->set_first_layer(first_layer);
    return estimate(resolve(in).value(), smollm2(), DeviceFacts{});
  };
  const auto whole = of(0), half = of(15);
  EXPECT_EQ(half.added_parameters(), 122'910 / 2);
  EXPECT_EQ(half.trained_parameters(), (122'910 + 16'588'800) / 2);
  EXPECT_EQ(half.artifact_bytes(), whole.artifact_bytes() / 2);
  EXPECT_LT(half.peak_host_memory_bytes(), whole.peak_host_memory_bytes());
  EXPECT_LT(half.expected_duration_seconds(), whole.expected_duration_seconds());
}

// k and v biases, and o's where there is one: what the trainer trains (model::trainables).
TEST(EstimateTest, CountsBiasesAndNorms) {
  const auto spec = resolved("paper").config.spec();
  v1::Model qwen2 = smollm2();
  qwen2.set_attention_bias(true);
  EXPECT_EQ(count_parameters(spec, qwen2).trained, 122'910 + 16'588'800 + 30 * 2 * 3 * 64);
  qwen2.set_output_bias(true);
  EXPECT_EQ(count_parameters(spec, qwen2).trained, 122'910 + 16'588'800 + 30 * (2 * 3 * 64 + 576));
  v1::Model qwen3 = smollm2();
  qwen3.set_qk_norm(true);  // trained it is not, but its inputs are kept for the backward pass
  EXPECT_EQ(count_parameters(spec, qwen3).trained, 122'910 + 16'588'800);
  EXPECT_GT(estimate(resolved("paper"), qwen3, DeviceFacts{}).peak_host_memory_bytes(),
            estimate(resolved("paper"), smollm2(), DeviceFacts{}).peak_host_memory_bytes());
}

// W_Q2 [H·d, D] and W_λ [H, D]; V1: W_Q2, W_K2 [K·d, D] and four vectors [d].
TEST(EstimateTest, CountsASecondMap) {
  const auto of = [](v1::DiffMethod::Version version, v1::DiffMethod::Train train) {
    ResolveInput in = estimate_input();
    in.spec.mutable_diff()->set_version(version);
    in.spec.mutable_diff()->set_train(train);
    return estimate(resolve(in).value(), smollm2(), DeviceFacts{});
  };
  const int64_t v2 = 30 * (576 * 576 + 9 * 576), v1 = 30 * (576 * 576 + 192 * 576 + 4 * 64),
                attention = 30 * 576 * (2 * 576 + 2 * 192);
  const auto two = of(v1::DiffMethod::VERSION_V2, v1::DiffMethod::TRAIN_ATTENTION);
  EXPECT_EQ(two.added_parameters(), v2);
  EXPECT_EQ(two.trained_parameters(), attention + v2);
  EXPECT_EQ(two.artifact_class(), "MODEL");
  EXPECT_EQ(two.artifact_bytes(), (134'515'008 + v2) * 4);
  const auto one = of(v1::DiffMethod::VERSION_V1, v1::DiffMethod::TRAIN_ALL);
  EXPECT_EQ(one.added_parameters(), v1);
  EXPECT_EQ(one.trained_parameters(), 134'515'008 + v1);
  EXPECT_EQ(one.artifact_class(), "MODEL");
}

// Both halves of the wide values are kept for the backward pass, and for λ's gradient side by side.
TEST(EstimateTest, CountsWhatLiesBetweenTwoMaps) {
  const auto memory = [](bool differential, bool full) {
    ResolveInput in = estimate_input();
    in.model.set_differential(differential);
    full ? static_cast<void>(in.spec.mutable_full())
         : static_cast<void>(in.spec.mutable_kvo_only());
    const Resolved result = resolve(in).value();
    const auto& hyper = result.config.spec().hyperparameters();
    const int64_t tokens = int64_t{hyper.micro_batch_size()} * hyper.max_seq_length();
    return estimate(result, in.model, DeviceFacts{}).peak_host_memory_bytes() / (tokens * 30 * 4);
  };
  EXPECT_NEAR(memory(true, false) - memory(false, false), (3 * 9 + 3) * 64, 1);
  EXPECT_NEAR(memory(true, true) - memory(false, true), (5 * 9 + 3) * 64, 1);
}

// The same table: LoRA r = 8 on q, k, v, o 921,600, adapter 4,462,080, everything 134,515,008.
TEST(EstimateTest, CountsTheBaselinesExactly) {
  const auto of = [](const std::function<void(v1::FineTuningJobSpec&)>& choose) {
    ResolveInput in = estimate_input();
    choose(in.spec);
    const Resolved result = resolve(in).value();
    return estimate(result, smollm2(), DeviceFacts{});
  };
  const auto lora = of([](auto& spec) { spec.mutable_lora(); });
  EXPECT_EQ(lora.trained_parameters(), 921'600);
  EXPECT_EQ(lora.added_parameters(), 921'600);
  EXPECT_EQ(lora.artifact_class(), "LIGHT");
  EXPECT_EQ(lora.artifact_bytes(), 921'600 * 4);
  const auto adapter = of([](auto& spec) { spec.mutable_adapter(); });
  EXPECT_EQ(adapter.trained_parameters(), 4'462'080);
  EXPECT_EQ(adapter.artifact_class(), "LIGHT");
  const auto full = of([](auto& spec) { spec.mutable_full(); });
  EXPECT_EQ(full.trained_parameters(), 134'515'008);
  EXPECT_EQ(full.added_parameters(), 0);
  EXPECT_EQ(full.artifact_class(), "MODEL");
  EXPECT_GT(full.peak_host_memory_bytes(), int64_t{5} * 134'515'008 * 4);
  const auto kvo = of([](auto& spec) { spec.mutable_kvo_only(); });
  EXPECT_EQ(kvo.trained_parameters(), 16'588'800);
  EXPECT_LT(lora.expected_duration_seconds(), kvo.expected_duration_seconds());
  EXPECT_LT(kvo.expected_duration_seconds(), full.expected_duration_seconds());
}

TEST(EstimateTest, CountsABranchBesideLoraAndBesideEverything) {
  ResolveInput in = estimate_input();
  in.spec.mutable_dex()->set_preset("paper");
  const auto with = [&](v1::DexMethod::Train train, v1::DexMethod::Projection projection) {
    in.spec.mutable_dex()->set_train(train);
    in.spec.mutable_dex()->set_projection(projection);
    return estimate(resolve(in).value(), smollm2(), DeviceFacts{});
  };
  const auto lora = with(v1::DexMethod::TRAIN_LORA_DEX, v1::DexMethod::PROJECTION_SHARED);
  EXPECT_EQ(lora.trained_parameters(), 645'120 + 122'910);
  EXPECT_EQ(lora.artifact_class(), "LIGHT");
  const auto full = with(v1::DexMethod::TRAIN_FULL_DEX, v1::DexMethod::PROJECTION_SHARED);
  EXPECT_EQ(full.trained_parameters(), 134'515'008 + 122'910);
  EXPECT_EQ(full.artifact_bytes(), int64_t{134'515'008} * 4);  // the branch is folded in
  EXPECT_EQ(full.artifact_class(), "MODEL");
  // A dense map is as large as the projections, whatever stands beside it.
  const auto dense = with(v1::DexMethod::TRAIN_LORA_DEX, v1::DexMethod::PROJECTION_DENSE);
  EXPECT_EQ(dense.trained_parameters(), 645'120 + 9'953'280 + 30);
  EXPECT_EQ(dense.artifact_class(), "KVO");
}

// The table of method.md §2.7: dense L(Hd)² 9,953,280; uniform_map has its gates alone.
TEST(EstimateTest, CountsEveryFormAndProjection) {
  auto spec = resolved("small").config.spec();
  auto& dex = *spec.mutable_dex();
  const auto added = [&] { return count_parameters(spec, smollm2()).added; };
  dex.set_form(v1::DexMethod::FORM_PREFIX_MEAN);
  EXPECT_EQ(added(), 1'105'920 + 30 * 9);
  dex.set_form(v1::DexMethod::FORM_UNIFORM_MAP);
  EXPECT_EQ(added(), 30 * 9);
  dex.set_form(v1::DexMethod::FORM_PAPER);
  dex.set_projection(v1::DexMethod::PROJECTION_DENSE);
  EXPECT_EQ(added(), 9'953'280);
  dex.mutable_lambda()->set_schedule(v1::Lambda::SCHEDULE_LEARNED);
  EXPECT_EQ(added(), 9'953'280 + 30);
  dex.set_projection(v1::DexMethod::PROJECTION_BOTTLENECK);
  dex.mutable_bottleneck()->set_width_ratio(0.25);
  dex.mutable_bottleneck()->set_scope(v1::DexMethod::Bottleneck::SCOPE_DENSE);
  EXPECT_EQ(added(), 30 * (2 * 576 * 144 + 1));
}

TEST(EstimateTest, StatesWorkTimeAndMemory) {
  const auto out = estimate(resolved("paper"), smollm2(), DeviceFacts{});
  EXPECT_EQ(out.total_steps(), 100);
  EXPECT_NEAR(out.train_tokens_per_step(), 2048, 8);
  EXPECT_GT(out.expected_duration_seconds(), 400);  // 200 k tokens at 150 to 500 a second
  EXPECT_LT(out.expected_duration_seconds(), 2000);
  EXPECT_LT(out.low_seconds(), out.expected_duration_seconds());
  EXPECT_GT(out.peak_host_memory_bytes(), 1'200'000'000);
  EXPECT_LT(out.peak_host_memory_bytes(), 2'500'000'000);
  EXPECT_TRUE(out.fits());
  EXPECT_EQ(out.artifact_class(), "KVO");
}

// The best weights lie apart from the last ones, in memory and in checkpoints.
TEST(EstimateTest, EarlyStoppingKeepsTheBestWeightsApart) {
  ResolveInput in = estimate_input();
  const auto usual = estimate(resolve(in).value(), in.model, DeviceFacts{});
  in.spec.mutable_early_stopping()->set_enabled(true);
  const auto stops = estimate(resolve(in).value(), in.model, DeviceFacts{});
  const int64_t apart = 4 * usual.trained_parameters();
  EXPECT_EQ(stops.checkpoint_bytes(), usual.checkpoint_bytes() + apart);
  EXPECT_EQ(stops.peak_host_memory_bytes(), usual.peak_host_memory_bytes() + apart);
  in.spec.mutable_early_stopping()->set_restore_best(false);
  EXPECT_EQ(estimate(resolve(in).value(), in.model, DeviceFacts{}).checkpoint_bytes(),
            usual.checkpoint_bytes());
}

// The base reads the probe's 4,096 tokens once, the adapted model at each of 12 evaluations; a gate
// alone reads them once. A scored token is 0.4 of a trained one.
TEST(EstimateTest, MeasuringKlToTheBaseTakesTime) {
  const auto seconds = [](auto change) {
    ResolveInput in = estimate_input();
    change(in.spec);
    const auto out = estimate(resolve(in).value(), smollm2(), DeviceFacts{});
    return out.expected_duration_seconds();
  };
  const double none = seconds([](auto&) {});
  const auto guarded = [](uint32_t every) {
    return [every](auto& spec) {
      spec.mutable_watchdog()->mutable_base_guard()->set_kl_max(0.1);
      spec.mutable_watchdog()->mutable_base_guard()->set_every_evals(every);
    };
  };
  const double often = seconds(guarded(1)) - none, seldom = seconds(guarded(4)) - none;
  const double once = seconds([](auto& spec) {
                        auto& gate = *spec.add_gates();
                        gate.set_task("base_guard");
                        gate.set_metric("kl");
                        gate.set_op(v1::Gate::OP_LE);
                        gate.set_threshold(0.1);
                      }) -
                      none;
  EXPECT_GT(once, 0);
  EXPECT_NEAR(often / once, 13.0 / 2, 1e-6);
  EXPECT_NEAR(seldom / once, 4.0 / 2, 1e-6);
}

// They are measured by a second process, which loads the model once more.
TEST(EstimateTest, TasksOfGatesTakeTime) {
  Resolved job = resolved("small");
  DeviceFacts device;
  const double plain = estimate(job, smollm2(), device).expected_duration_seconds();
  job.gate_flops = 60 * device.flops_per_second;
  const double start_up = 10.0 + static_cast<double>(smollm2().parameters()) / 50e6;
  EXPECT_NEAR(estimate(job, smollm2(), device).expected_duration_seconds(), plain + 60 + start_up,
              1e-6);
}

TEST(EstimateTest, RefusesWhatDoesNotFitAndSaysWhatWould) {
  const auto out = estimate(resolved("paper"), smollm2(), DeviceFacts{.memory_bytes = 1 << 30});
  EXPECT_FALSE(out.fits());
  EXPECT_FALSE(out.allowed_to_proceed());
  ASSERT_EQ(out.blockers_size(), 1);
  EXPECT_NE(out.blockers(0).find("lower micro_batch_size"), std::string::npos);
}

}  // namespace
}  // namespace dex::core
