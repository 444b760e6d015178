#include "scheduler/server/checkpoint_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace dex::server {
namespace {

class CheckpointListTest : public ::testing::Test {
 protected:
  v1::FineTuningEvent next() {
    v1::FineTuningEvent event;
    event.set_sequence(++sequence_);
    event.mutable_create_time()->set_seconds(1000 + sequence_);
    return event;
  }
  void train(uint32_t step, double loss) {
    auto event = next();
    event.mutable_metrics()->set_step(step);
    event.mutable_metrics()->set_train_loss(loss);
    list_.add(event);
  }
  void evaluate(uint32_t step, double loss) {
    auto event = next();
    event.mutable_eval_complete()->set_step(step);
    event.mutable_eval_complete()->set_valid_loss(loss);
    event.mutable_eval_complete()->set_token_accuracy(0.5);
    list_.add(event);
  }
  void save(uint32_t step, bool best) {
    auto event = next();
    auto& save = *event.mutable_checkpoint_save();
    save.set_checkpoint("step-" + std::to_string(step));
    save.set_step(step);
    save.set_bytes(step * 10);
    save.set_is_best(best);
    save.set_verified(true);
    list_.add(event);
  }
  std::string steps(const std::string& after = "", int count = 10) {
    const auto page = list_.page(after, count);
    if (!page.ok()) return page.status().reason();
    std::string text;
    for (const auto& checkpoint : page->checkpoints())
      text += std::to_string(checkpoint.step()) + (checkpoint.is_best() ? "b" : "") +
              (checkpoint.is_last() ? "l" : "") + " ";
    return text + (page->has_more() ? "…" : "");
  }

  int64_t sequence_ = 0;
  CheckpointList list_{"ftjob-01jd"};
};

TEST_F(CheckpointListTest, EachHasTheFiguresOfItsStep) {
  train(2, 3.5);
  evaluate(2, 2.5);
  save(2, true);
  train(3, 3.25);
  save(4, false);
  const auto page = list_.page("", 10).value();
  ASSERT_EQ(page.checkpoints_size(), 2);
  const auto& first = page.checkpoints(1);
  EXPECT_EQ(first.id(), "ftckpt-01jd-2");
  EXPECT_EQ(first.name(), "step-2");
  EXPECT_EQ(first.job(), "ftjob-01jd");
  EXPECT_EQ(first.train_loss(), 3.5);
  EXPECT_EQ(first.valid_loss(), 2.5);
  EXPECT_EQ(first.valid_token_accuracy(), 0.5);
  EXPECT_EQ(first.bytes(), 20);
  EXPECT_TRUE(first.verified());
  EXPECT_EQ(first.create_time().seconds(), 1003);
  EXPECT_FALSE(page.checkpoints(0).has_train_loss()) << "step 4 was not reported";
  EXPECT_FALSE(page.checkpoints(0).has_valid_loss());
}

TEST_F(CheckpointListTest, LambdaAndBranchByLayerAreThoseOfTheLastEvaluation) {
  const auto point = [this](uint32_t step, double mean, std::vector<float> lambda,
                            std::vector<float> ratio) {
    auto event = next();
    auto& metrics = *event.mutable_metrics();
    metrics.set_step(step);
    metrics.set_lambda_mean(mean);
    metrics.mutable_lambda()->Add(lambda.begin(), lambda.end());
    metrics.mutable_branch_ratio()->Add(ratio.begin(), ratio.end());
    list_.add(event);
  };
  save(1, false);  // before any evaluation
  point(2, 0.25, {}, {});
  save(2, true);  // saved before the evaluation of its step is told
  point(2, 0.25, {0.2F, 0.3F}, {0.01F, 0.02F});
  point(3, 0.5, {}, {});
  save(3, false);  // between two
  point(4, 0.6, {0.5F, 0.7F}, {0.03F, 0.04F});
  const auto page = list_.page("", 10).value();
  ASSERT_EQ(page.checkpoints_size(), 3);
  const auto& between = page.checkpoints(0);
  EXPECT_EQ(between.by_layer_step(), 2u);
  EXPECT_EQ(between.lambda(1), 0.3F);
  EXPECT_EQ(between.branch_ratio(1), 0.02F);
  EXPECT_EQ(between.lambda_mean(), 0.5) << "of its own step";
  EXPECT_EQ(page.checkpoints(1).by_layer_step(), 2u);
  EXPECT_EQ(page.checkpoints(1).lambda(0), 0.2F);
  EXPECT_EQ(page.checkpoints(1).lambda_mean(), 0.25);
  EXPECT_FALSE(page.checkpoints(2).has_by_layer_step());
  EXPECT_EQ(page.checkpoints(2).lambda_size(), 0);
}

// Without a branch there are no points by layer, and no λ to tell.
TEST_F(CheckpointListTest, WithoutABranchThereIsNoLambda) {
  train(2, 3.5);
  evaluate(2, 2.5);
  save(2, true);
  const auto page = list_.page("", 10).value();
  EXPECT_FALSE(page.checkpoints(0).has_lambda_mean());
  EXPECT_FALSE(page.checkpoints(0).has_by_layer_step());
}

TEST_F(CheckpointListTest, NewestFirstInPages) {
  save(2, true);
  save(4, true);
  save(6, false);
  EXPECT_EQ(steps(), "6l 4b 2 ");
  EXPECT_EQ(steps("", 2), "6l 4b …");
  EXPECT_EQ(steps("ftckpt-01jd-4", 2), "2 ");
  EXPECT_EQ(steps("ftckpt-01jd-2"), "");
  EXPECT_EQ(steps("ftckpt-01jd-3"), "INVALID_CURSOR");
}

TEST_F(CheckpointListTest, AStepThatIsWrittenAgainIsOne) {
  save(2, true);
  save(4, true);
  save(2, false);  // after a roll-back
  EXPECT_EQ(steps(), "2l 4b ");
}

}  // namespace
}  // namespace dex::server
