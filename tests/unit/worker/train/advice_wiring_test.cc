// Each hint of method.md §5 reaches the user of a job in which its trigger is true. What triggers
// them and what they say is advice_test.cc's.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/serve/tiny_adapters.h"
#include "tests/unit/worker/train/held_out_rows.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"

namespace dex::train::testing {
namespace {

class AdviceWiringTest : public JobTest {
 protected:
  // A job that goes on from `adapter` and leaves it as it is: no fp32 number moves by 1e-30 of it.
  JobSpec resting_on(const model::Adapter& adapter, const std::string& attempt) const {
    model::write_adapter(directory_ / ("start-" + attempt), adapter);
    JobSpec spec = resting(attempt);
    spec.start_adapter = "ft:tiny:default::start";
    spec.start_adapter_dir = directory_ / ("start-" + attempt);
    return spec;
  }
  JobSpec resting(const std::string& attempt) const {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.learning_rate = spec.hyperparameters.branch_learning_rate =
        spec.hyperparameters.lambda_learning_rate = 1e-30;
    return spec;
  }
  std::string base_sha256() const { return model::base_weights_sha256(directory_ / "model"); }

  const model::Config config_ = tiny_config();
  const model::Weights weights_ = tiny_weights(config_);
  const model::Llama llama_{config_, weights_};
};

// An adapter of random K, V and O that is worse than the base on the held-out rows.
TEST_F(AdviceWiringTest, Degraded) {
  model::DexOptions options;
  options.train = model::Train::kKvoOnly;
  options.form = model::Form::kNone;
  const double base = loss_on_held_out_rows(llama_, {});
  double loss = 0;
  model::Adapter adapter;
  for (uint64_t stream = 1; loss < 1.02 * base; stream += 100) {
    ASSERT_LT(stream, 5000u);
    adapter = serve::testing::tiny_adapter(options, stream, base_sha256());
    loss = loss_on_held_out_rows(llama_, adapter.adaptation);
  }
  JobSpec spec = resting_on(adapter, "worse");
  choose(model::Train::kKvoOnly, spec);
  RecordingSession session;
  run(spec, session);
  EXPECT_TRUE(session.has_advice("degraded"));
  RecordingSession same;
  JobSpec rests = resting("same");
  run(rests, same);
  EXPECT_FALSE(same.has_advice("degraded"));
}

// The branch's share of O is proportional to λ, which a first job says the factor of.
TEST_F(AdviceWiringTest, Weak) {
  const auto effect_at = [&](double lambda, const std::string& attempt, RecordingSession& session) {
    model::DexOptions options;
    options.lambda = {.schedule = model::Schedule::kConstant, .value = lambda};
    JobSpec spec = resting_on(serve::testing::tiny_adapter(options, 7, base_sha256()), attempt);
    spec.dex.lambda = options.lambda;
    return run(spec, session).branch_effect;
  };
  RecordingSession first, second;
  const auto strong = effect_at(0.4, "strong", first);
  ASSERT_EQ(strong.verdict, evaluate::BranchEffect::Verdict::kActive);
  EXPECT_FALSE(first.has_advice("weak"));
  const auto weak = effect_at(0.4 * 0.007 / strong.value, "weak", second);
  ASSERT_EQ(weak.verdict, evaluate::BranchEffect::Verdict::kWeak) << weak.value;
  EXPECT_TRUE(second.has_advice("weak"));
}

// One row an update and nothing learned: each update's loss is its row's. A dozen of 64 rows
// consist of what the base finds least likely.
TEST_F(AdviceWiringTest, Unstable) {
  const auto least_likely_after = [&](const std::vector<int64_t>& ids) {
    const at::NoGradGuard no_grad;
    return llama_.logits(model::pack({ids}))[-1].argmin().item<int64_t>();
  };
  std::vector<std::vector<int32_t>> rows;
  uint32_t state = 1;
  for (int32_t r = 0; r < 64; ++r) {
    std::vector<int64_t> ids = {r};
    while (ids.size() < 40) {
      state = state * 1664525U + 1013904223U;
      ids.push_back(r % 5 == 0 ? least_likely_after(ids) : static_cast<int64_t>((state >> 8) % 97));
    }
    rows.emplace_back(ids.begin(), ids.end());
  }
  write_rows(directory_ / "train.jsonl", rows);
  JobSpec spec = resting("spikes");
  spec.hyperparameters.packing = false;
  spec.hyperparameters.batch_size = spec.hyperparameters.micro_batch_size = 1;
  spec.hyperparameters.max_steps = 64;
  spec.watchdog.loss_factor = 100;  // what the watchdog would do about them is not asked here
  RecordingSession session;
  run(spec, session);
  EXPECT_TRUE(session.has_advice("unstable"));
}

// All rows in each update, so that nothing but learning moves the losses. What the held-out rows
// say contradicts what is learned.
TEST_F(AdviceWiringTest, Overfitting) {
  const auto rows = [](int count, int factor, int offset) {
    std::vector<std::vector<int32_t>> out;
    for (int r = 0; r < count; ++r) {
      std::vector<int32_t> row = {(r * 11 + 1) % 97};
      while (row.size() < 30) row.push_back((row.back() * factor + offset) % 97);
      out.push_back(row);
    }
    return out;
  };
  write_rows(directory_ / "train.jsonl", rows(16, 5, 3));
  write_rows(directory_ / "validation.jsonl", rows(12, 7, 11));
  JobSpec spec = this->spec();
  choose(model::Train::kFull, spec);
  spec.hyperparameters.batch_size = 64;
  spec.hyperparameters.max_steps = 200;
  spec.hyperparameters.learning_rate = 5e-3;
  spec.evaluation.every_steps = 10;
  RecordingSession session;
  run(spec, session);
  EXPECT_TRUE(session.has_advice("overfitting"));
}

TEST_F(AdviceWiringTest, SelectionEmptyAndWide) {
  for (const bool wide : {false, true}) {
    JobSpec spec = this->spec(wide ? "wide" : "empty");
    spec.heads.criterion = evaluate::Criterion::kThreshold;
    spec.heads.tau = wide ? -1000 : 1000;  // eta 0 adds none
    RecordingSession session;
    run(spec, session);
    EXPECT_EQ(session.has_advice("selection_wide"), wide);
    EXPECT_EQ(session.has_advice("selection_empty"), !wide);
  }
}

}  // namespace
}  // namespace dex::train::testing
