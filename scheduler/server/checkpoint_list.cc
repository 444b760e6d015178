#include "scheduler/server/checkpoint_list.h"

#include <algorithm>
#include <vector>

namespace dex::server {

void CheckpointList::add(const v1::FineTuningEvent& event) {
  if (event.has_metrics()) {
    const v1::Metrics& point = event.metrics();
    train_loss_[point.step()] = point.train_loss();
    lambda_mean_[point.step()] = point.lambda_mean();
    if (point.lambda_size() > 0) by_layer_[point.step()] = point;
  } else if (event.has_eval_complete()) {
    const auto& found = event.eval_complete();
    evaluated_[found.step()] = {found.valid_loss(), found.token_accuracy()};
  } else if (event.has_checkpoint_save()) {
    const auto& save = event.checkpoint_save();
    Saved& saved = saved_[save.step()];
    v1::Checkpoint& checkpoint = saved.checkpoint;
    saved.sequence = event.sequence();
    checkpoint.set_id("ftckpt-" + job_.substr(job_.find('-') + 1) + "-" +
                      std::to_string(save.step()));
    checkpoint.set_job(job_);
    checkpoint.set_type(v1::Checkpoint::TYPE_TRAINING);
    checkpoint.set_state(v1::Checkpoint::STATE_READY);
    checkpoint.set_step(save.step());
    checkpoint.set_name(save.checkpoint());
    checkpoint.set_bytes(save.bytes());
    checkpoint.set_verified(save.verified());
    *checkpoint.mutable_create_time() = event.create_time();
    if (save.is_best()) best_ = save.step();
  }
}

base::Result<v1::ListFineTuningCheckpointsResponse> CheckpointList::page(const std::string& after,
                                                                         int count) const {
  std::vector<const Saved*> order;
  for (const auto& [step, saved] : saved_) order.push_back(&saved);
  // By when they were written: after a roll-back steps come again.
  std::sort(order.begin(), order.end(),
            [](const Saved* a, const Saved* b) { return a->sequence > b->sequence; });
  auto at = order.begin();
  if (!after.empty()) {
    at = std::find_if(order.begin(), order.end(),
                      [&](const Saved* saved) { return saved->checkpoint.id() == after; });
    if (at == order.end()) {
      return base::bad_field("INVALID_CURSOR", "after",
                             "names no checkpoint of this job: '" + after.substr(0, 64) + "'");
    }
    ++at;
  }
  v1::ListFineTuningCheckpointsResponse page;
  for (; at != order.end(); ++at) {
    if (page.checkpoints_size() == count) {
      page.set_has_more(true);
      break;
    }
    auto& checkpoint = *page.add_checkpoints();
    checkpoint = (*at)->checkpoint;
    checkpoint.set_is_best(best_ == checkpoint.step());
    checkpoint.set_is_last(*at == order.front());
    add_figures(checkpoint);
  }
  return page;
}

void CheckpointList::add_figures(v1::Checkpoint& checkpoint) const {
  const uint32_t step = checkpoint.step();
  if (const auto loss = train_loss_.find(step); loss != train_loss_.end())
    checkpoint.set_train_loss(loss->second);
  if (const auto found = evaluated_.find(step); found != evaluated_.end()) {
    checkpoint.set_valid_loss(found->second.loss);
    checkpoint.set_valid_token_accuracy(found->second.accuracy);
  }
  auto point = by_layer_.upper_bound(step);
  if (point == by_layer_.begin()) return;  // no evaluation yet, or no branch
  const v1::Metrics& measured = (--point)->second;
  *checkpoint.mutable_lambda() = measured.lambda();
  *checkpoint.mutable_branch_ratio() = measured.branch_ratio();
  checkpoint.set_by_layer_step(measured.step());
  if (const auto mean = lambda_mean_.find(step); mean != lambda_mean_.end())
    checkpoint.set_lambda_mean(mean->second);
}

}  // namespace dex::server
