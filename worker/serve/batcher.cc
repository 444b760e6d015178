#include "worker/serve/batcher.h"

#include <algorithm>
#include <utility>

namespace dex::serve {
namespace {

int32_t left(const Schedulable& sequence) {
  return static_cast<int32_t>(sequence.tokens.size()) - sequence.computed;
}

// One token that was generated. The last token of a prompt counts as prompt even when it stands
// alone: which kernel computes a row then depends on the request only, not on how its prompt was
// cut.
bool decodes(const Schedulable& sequence) {
  return left(sequence) == 1 && sequence.computed >= sequence.prompt_tokens;
}

}  // namespace

Batcher::Batcher(const Options& options, BlockManager& blocks)
    : options_(options), blocks_(blocks) {}

void Batcher::add(Schedulable* sequence) {
  waiting_.push_back(sequence);
}

void Batcher::remove(Schedulable* sequence) {
  std::erase(waiting_, sequence);
  if (std::erase(running_, sequence) > 0) blocks_.release(std::exchange(sequence->lease, {}));
}

Plan Batcher::plan() {
  admit();
  Plan plan;
  plan_decode(plan);
  plan_prefill(plan);
  return plan;
}

void Batcher::computed(const Share& share) {
  Schedulable& sequence = *share.sequence;
  sequence.computed = share.first + share.count;
  blocks_.publish(sequence.lease, sequence.tokens, sequence.computed);
}

void Batcher::admit() {
  while (!waiting_.empty() && static_cast<int32_t>(running_.size()) < options_.max_running) {
    Schedulable* next = waiting_.front();
    // A block for each running sequence stays free, or the newcomer would be sent back within a few
    // steps.
    const auto length = static_cast<int32_t>(next->tokens.size());
    const auto reserve = static_cast<int32_t>(running_.size());
    if (!running_.empty() && blocks_.blocks_for(length) + reserve > blocks_.free_blocks()) return;
    auto lease = blocks_.acquire(next->adapter_key, next->tokens, next->reusable);
    if (!lease) return;
    next->lease = std::move(*lease);
    next->computed = next->lease.cached_tokens;
    running_.push_back(next);
    waiting_.pop_front();
  }
}

void Batcher::plan_decode(Plan& plan) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Schedulable* sequence = running_[i];
    if (!decodes(*sequence)) continue;
    // The youngest makes room, if need be this one itself; then the list ends here.
    while (i < running_.size() &&
           !blocks_.extend(sequence->lease, static_cast<int32_t>(sequence->tokens.size()))) {
      preempt_youngest();
    }
    if (i < running_.size()) plan.decode.push_back({sequence, sequence->computed, 1});
  }
}

void Batcher::plan_prefill(Plan& plan) {
  std::vector<Schedulable*> prompts;
  for (Schedulable* sequence : running_) {
    if (!decodes(*sequence)) prompts.push_back(sequence);
  }
  if (prompts.empty()) return;
  std::ranges::rotate(prompts, prompts.begin() + static_cast<int64_t>(turn_++ % prompts.size()));
  // Everybody gets an equal part, so that a long prompt does not hold up short ones; the rest goes
  // in order.
  int32_t room = options_.chunk_tokens;
  const int32_t part = std::max(32, room / static_cast<int32_t>(prompts.size()));
  for (Schedulable* sequence : prompts) {
    const int32_t count = std::min({left(*sequence), part, room});
    if (count > 0) plan.prefill.push_back({sequence, sequence->computed, count});
    room -= count;
  }
  for (Share& share : plan.prefill) {
    const int32_t more = std::min(left(*share.sequence) - share.count, room);
    share.count += more;
    room -= more;
  }
}

void Batcher::preempt_youngest() {
  Schedulable* youngest = running_.back();
  running_.pop_back();
  blocks_.release(std::exchange(youngest->lease, {}));
  youngest->computed = 0;
  waiting_.push_front(youngest);
  ++preemptions_;
}

}  // namespace dex::serve
