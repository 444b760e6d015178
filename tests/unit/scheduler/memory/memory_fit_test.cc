#include "scheduler/core/memory_fit.h"

#include <gmock/gmock.h>

#include "tests/unit/scheduler/core/smollm2.h"

namespace dex::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

// performance.md §2: 3·D + 2·(H + K)·d + 2·I numbers of fp32 a token and layer, with the shapes of
// SmolLM2.
constexpr int64_t kBytesOfAToken = int64_t{4} * 30 * (3 * 576 + 2 * (9 + 3) * 64 + 2 * 1536);

class MemoryFitTest : public testing::Test {
 protected:
  MemoryFitTest() {
    ResolveInput in;
    in.spec.set_model("smollm2-135m-instruct");
    in.spec.set_training_file("file-1");
    in.spec.set_validation_split(0);
    in.spec.mutable_kvo_only();
    auto& hyper = *in.spec.mutable_hyperparameters();
    hyper.set_max_steps(100);
    hyper.set_max_seq_length(512);
    hyper.set_batch_size(4);
    hyper.set_micro_batch_size(4);
    in.model = smollm2();
    in.training = {v1::FILE_FORMAT_TEXT, 400, 1'000'000, 20'000};
    resolved_ = resolve(in).value();
    rest_ = peak_host_memory(spec(), smollm2()) - 4 * 512 * kBytesOfAToken;
  }
  [[nodiscard]] const v1::FineTuningJobSpec& spec() const { return resolved_.config.spec(); }
  // What a setting needs.
  [[nodiscard]] int64_t need(int64_t micro_batch, int64_t length) const {
    return rest_ + micro_batch * length * kBytesOfAToken;
  }
  [[nodiscard]] SettingChanges fit(int64_t bytes) const {
    return nearest_fit(spec(), smollm2(), bytes);
  }
  [[nodiscard]] SettingChanges after(uint32_t micro_batch, int64_t peak) const {
    v1::OutOfMemory failed;
    failed.set_micro_batch_size(micro_batch);
    failed.set_max_seq_length(512);
    failed.set_peak_memory_bytes(peak);
    return nearest_fit(spec(), smollm2(), failed);
  }

  Resolved resolved_;
  int64_t rest_ = 0;  // base model, trained weights, runtime: whatever the batch
};

TEST_F(MemoryFitTest, HalvesTheMicroBatchFirst) {
  EXPECT_GT(rest_, int64_t{134'515'008} * 4) << "the base model alone";
  EXPECT_THAT(fit(need(4, 512)), IsEmpty()) << "it fits as it is";
  EXPECT_THAT(fit(need(4, 512) - 1),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  EXPECT_THAT(fit(need(2, 512)),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  EXPECT_THAT(fit(need(2, 512) - 1),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U)));
}

TEST_F(MemoryFitTest, ThenTheSequence) {
  EXPECT_THAT(fit(need(1, 512) - 1),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U),
                                   Pair("hyperparameters.max_seq_length", 256U)));
  EXPECT_THAT(fit(need(1, 16)), UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U),
                                                     Pair("hyperparameters.max_seq_length", 16U)));
  EXPECT_THAT(fit(need(1, 16) - 1), IsEmpty()) << "nothing fits";
}

TEST_F(MemoryFitTest, AJobThatFailedNeedsLessThanItsPeakAndThanItself) {
  // The estimate was right, or too low: at least the next step down.
  EXPECT_THAT(after(4, need(4, 512)),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  EXPECT_THAT(after(4, 2 * need(4, 512)),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  // It got less than it was to have.
  EXPECT_THAT(after(4, need(1, 512) + 1),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U)));
  EXPECT_THAT(after(4, need(1, 16) - 1), IsEmpty());
  // A second attempt ran with half of what the spec says.
  EXPECT_THAT(after(2, need(2, 512)),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U)));
}

TEST_F(MemoryFitTest, AnEstimateThatDoesNotFitNamesTheNearestSettingThatDoes) {
  DeviceFacts device;
  device.memory_bytes = need(1, 256);
  const auto small = estimate(resolved_, smollm2(), device);
  EXPECT_EQ(small.method(), v1::Estimate::METHOD_FORMULA);
  EXPECT_FALSE(small.fits());
  EXPECT_THAT(small.nearest_fit(),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U),
                                   Pair("hyperparameters.max_seq_length", 256U)));
  EXPECT_THAT(small.blockers(0), HasSubstr("micro_batch_size 1, max_seq_length 256 would fit"));
  device.memory_bytes = need(4, 512);
  EXPECT_THAT(estimate(resolved_, smollm2(), device).nearest_fit(), IsEmpty());
  device.memory_bytes = 1 << 20;
  const auto none = estimate(resolved_, smollm2(), device);
  EXPECT_THAT(none.nearest_fit(), IsEmpty());
  EXPECT_THAT(none.blockers(0), testing::Not(HasSubstr("would fit")));
}

// 1,000 tokens in ten seconds: a hundred a second, whatever the machine was thought to do.
TEST_F(MemoryFitTest, AProbesMemoryAndSpeedAreTheEstimates) {
  v1::MemoryProbe probe;
  probe.set_peak_memory_bytes(123'456'789);
  probe.set_step_tokens(1'000);
  probe.set_step_seconds(10);
  probe.set_total_steps(50);
  DeviceFacts device;
  device.memory_bytes = 1 << 20;  // it did fit
  const auto out = probed_estimate(resolved_, smollm2(), device, probe);
  EXPECT_EQ(out.method(), v1::Estimate::METHOD_PROBE);
  EXPECT_TRUE(out.fits());
  EXPECT_TRUE(out.allowed_to_proceed());
  EXPECT_EQ(out.blockers_size(), 0);
  EXPECT_EQ(out.peak_host_memory_bytes(), 123'456'789);
  EXPECT_EQ(out.probe().step_tokens(), 1'000);
  EXPECT_EQ(out.total_steps(), 50);
  const double start_up = 10.0 + 134'515'008 / 50e6;
  const double tokens = 50.0 * static_cast<double>(out.train_tokens_per_step());
  EXPECT_NEAR(out.expected_duration_seconds(), start_up + tokens / 100, 1e-6 * tokens);
}

}  // namespace
}  // namespace dex::core
