#include "worker/serve/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "worker/kernels/row_ops.h"
#include "worker/serve/lambda_scale.h"
#include "worker/serve/sampler.h"
#include "worker/serve/text_output.h"

namespace dex::serve {
namespace {

// Logits of many rows at once: performance.md §0, rule 8.
constexpr int64_t kLogitsBytes = int64_t{32} << 20;
constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

int thread_count(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

kernels::KvLayout kv_layout(const ServingModel& model) {
  return {model.config.key_heads(), model.config.head_dim, model.number};
}

int64_t block_count(const ServingModel& model, int64_t cache_bytes) {
  const int64_t a_block = KvPool::block_bytes(kv_layout(model), model.config.layers);
  if (cache_bytes > 0) return std::max<int64_t>(1, cache_bytes / a_block);
  const int64_t context =
      (model.config.max_position_embeddings + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  return std::max(context, kDefaultCacheBytes / a_block);
}

// Rows of one adapter side by side.
std::vector<Share> by_adapter(std::vector<Share> shares) {
  std::ranges::stable_sort(shares, {}, [](const Share& share) { return share.sequence->group; });
  return shares;
}

}  // namespace

// A request while it lives. `tokens` and the rest of Schedulable are shared with the batcher.
struct Engine::Sequence : Schedulable {
  Sequence(uint64_t handle, Request request_in, std::shared_ptr<const ServingAdapter> adapter_in,
           std::shared_ptr<Listener> listener_in, const text::Tokenizer* tokenizer,
           std::span<const int32_t> end_ids, int64_t now_ms)
      : handle(handle),
        request(std::move(request_in)),
        adapter(std::move(adapter_in)),
        listener(std::move(listener_in)),
        sampler(request.sampling, request.prompt, request.top_logprobs.value_or(-1)),
        text(tokenizer, request),
        submitted_ms(now_ms) {
    if (request.min_tokens > 0) {
      banned.assign(end_ids.begin(), end_ids.end());
      banned.insert(banned.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
    }
    tokens = request.prompt;
    prompt_tokens = static_cast<int32_t>(tokens.size());
    adapter_key = cache_key(request, adapter.get());
    // An adapter and itself with its branch apart are neighbours, not one group.
    group = adapter ? (adapter->key << 1) | (adapter->is_folded() ? 0U : 1U) : 0;
    // The logits of the token before the first entry are needed.
    if (wants_echo_rows()) reusable = request.echo_from - 1;
    if (adapter && adapter->keeps_state()) reusable = 0;
    echoed = wants_echo_rows() ? std::min(request.echo_from, prompt_tokens) : 0;
  }
  [[nodiscard]] int32_t generated() const {
    return static_cast<int32_t>(tokens.size()) - prompt_tokens;
  }
  // What must not be chosen next: ends, before min_tokens.
  [[nodiscard]] std::span<const int32_t> banned_now() const {
    return generated() < request.min_tokens ? std::span<const int32_t>(banned)
                                            : std::span<const int32_t>();
  }
  // Where the share holds the prompt's last token and its attention is asked for; else nullptr.
  [[nodiscard]] const AttentionProbe* probe_for(const Share& share) {
    const std::vector<uint8_t>& parts = request.attention_parts;
    const int32_t last = prompt_tokens - 1;
    if (parts.empty() || last < share.first || last >= share.first + share.count) return nullptr;
    attention.assign(size_t{1} + *std::ranges::max_element(parts), 0.0);
    probe = {last, parts, attention};
    return &probe;
  }
  [[nodiscard]] bool wants_echo_rows() const {
    return request.echo && request.top_logprobs.has_value();
  }

  uint64_t handle;
  Request request;
  std::shared_ptr<const ServingAdapter> adapter;
  BranchState branch_state;  // used if the adapter keeps one
  std::shared_ptr<Listener> listener;
  Sampler sampler;
  std::vector<int32_t> banned;  // with min_tokens: the model's ends and the request's own
  TextOutput text;
  int64_t submitted_ms;
  int64_t first_step_ms = -1;
  int64_t first_token_ms = -1;
  int32_t cached_tokens = 0;
  int32_t echoed = 0;  // prompt tokens that the listener has, or does not want
  bool ended = false;
  std::span<float> logits;  // of this step
  Choice choice;
  AttentionProbe probe;           // of the prompt's last token, where the request asks for it
  std::vector<double> attention;  // what it measured
};

Engine::Engine(std::shared_ptr<const ServingModel> model, const text::Tokenizer* tokenizer,
               const Options& options, const base::Clock& clock)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      options_(options),
      clock_(clock),
      threads_(thread_count(options.threads)),
      pool_(kv_layout(*model_), model_->config.layers,
            block_count(*model_, options.kv_cache_bytes)),
      blocks_({static_cast<int32_t>(pool_.blocks()), static_cast<int32_t>(kernels::kBlockTokens)}),
      batcher_({options.max_running, options.chunk_tokens}, blocks_),
      forward_(*model_, pool_, threads_, std::max(options.max_running, options.chunk_tokens)) {
  limits_ = {static_cast<int32_t>(model_->config.max_position_embeddings),
             static_cast<int32_t>(pool_.blocks() * kernels::kBlockTokens),
             static_cast<int32_t>(model_->config.vocab_size), tokenizer != nullptr,
             options.longest_timeout_ms};
  for (const int64_t id : model_->config.eos_token_ids)
    end_ids_.push_back(static_cast<int32_t>(id));
  if (tokenizer != nullptr) {
    for (const int32_t id : tokenizer->stop_ids()) {
      if (std::ranges::find(end_ids_, id) == end_ids_.end()) end_ids_.push_back(id);
    }
  }
}

Engine::~Engine() = default;

base::Status Engine::submit(uint64_t handle, Request request,
                            std::shared_ptr<const ServingAdapter> adapter,
                            std::shared_ptr<Listener> listener) {
  DEX_RETURN_IF_ERROR(validate(request, limits_));
  DEX_RETURN_IF_ERROR(check_lambda_scale(request, adapter.get()));
  if (needs_branch_apart(request, adapter.get()))
    return base::internal("adapter " + adapter->id + " is folded, so its λ can't be scaled");
  auto sequence =
      std::make_unique<Sequence>(handle, std::move(request), std::move(adapter),
                                 std::move(listener), tokenizer_, end_ids_, clock_.steady_ms());
  {
    const std::lock_guard lock(mutex_);
    if (draining_)
      return base::unavailable("SERVER_DRAINING", "the engine is stopping; try another replica");
    if (live_ >=
        static_cast<size_t>(options_.max_running) + static_cast<size_t>(options_.max_waiting)) {
      return base::Status(base::Code::kResourceExhausted, "QUEUE_FULL",
                          "the engine has " + std::to_string(live_) +
                              " requests, the most it takes; try again later");
    }
    ++live_;
    incoming_.push_back({handle, std::move(sequence)});
  }
  wake_.notify_one();
  return {};
}

void Engine::cancel(uint64_t handle) {
  {
    const std::lock_guard lock(mutex_);
    incoming_.push_back({handle, nullptr});
  }
  wake_.notify_one();
}

void Engine::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

Engine::Load Engine::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

bool Engine::idle() const {
  const std::lock_guard lock(mutex_);
  return live_ == 0;
}

int64_t Engine::memory_bytes() const {
  return model_->bytes + pool_.bytes();
}

void Engine::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (!take_incoming()) {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, std::chrono::seconds(1), [this] { return !incoming_.empty(); });
      continue;
    }
    step();
  }
  take_incoming();
  while (!sequences_.empty()) {
    fail(*sequences_.begin()->second,
         base::unavailable("SERVER_DRAINING", "the engine is stopping"));
  }
  ended_.clear();
  publish_load();
}

void Engine::run_until_idle(const std::function<void()>& after_step) {
  while (take_incoming()) {
    step();
    if (after_step) after_step();
  }
}

bool Engine::take_incoming() {
  std::vector<Incoming> incoming;
  {
    const std::lock_guard lock(mutex_);
    incoming.swap(incoming_);
  }
  for (Incoming& item : incoming) {
    const auto found = sequences_.find(item.handle);
    if (item.sequence == nullptr) {
      if (found != sequences_.end()) finish(*found->second, FinishReason::kCancelled, {}, {});
    } else if (found != sequences_.end()) {
      // Two sequences must not share a handle: the one that runs is kept.
      Outcome outcome;
      outcome.error =
          base::Status(base::Code::kAlreadyExists, "NAME_TAKEN",
                       "request " + std::to_string(item.handle) + " is running already");
      {
        const std::lock_guard lock(mutex_);
        --live_;
      }
      item.sequence->listener->on_done(std::move(outcome));
    } else {
      batcher_.add(item.sequence.get());
      sequences_[item.handle] = std::move(item.sequence);
    }
  }
  ended_.clear();
  if (!incoming.empty()) publish_load();
  return !sequences_.empty();
}

void Engine::expire() {
  const int64_t now = clock_.steady_ms();
  std::vector<Sequence*> late;
  for (const auto& [handle, sequence] : sequences_) {
    if (now - sequence->submitted_ms > sequence->request.timeout_ms) late.push_back(sequence.get());
  }
  for (Sequence* sequence : late) {
    fail(*sequence, base::Status(base::Code::kDeadlineExceeded, "DEADLINE",
                                 "not finished within timeout_seconds " +
                                     std::to_string(sequence->request.timeout_ms / 1000) + "; " +
                                     std::to_string(sequence->generated()) + " tokens were made"));
  }
}

void Engine::step() {
  expire();
  const Plan plan = batcher_.plan();
  decode(plan.decode);
  prefill(plan.prefill);
  preemptions_ = batcher_.preemptions();
  publish_load();
  ended_.clear();
}

void Engine::compute(const std::vector<Share>& shares, Forward::Kernel kernel) {
  const int64_t now = clock_.steady_ms();
  segments_.clear();
  for (const Share& share : shares) {
    auto& sequence = static_cast<Sequence&>(*share.sequence);
    if (sequence.first_step_ms < 0) {
      sequence.first_step_ms = now;
      sequence.cached_tokens = sequence.lease.cached_tokens;
    }
    segments_.push_back({sequence.adapter.get(), sequence.lease.blocks, share.first,
                         std::span(sequence.tokens).subspan(share.first, share.count),
                         &sequence.branch_state, sequence.probe_for(share),
                         static_cast<float>(sequence.request.lambda_scale())});
  }
  forward_.run(segments_, kernel);
}

void Engine::decode(const std::vector<Share>& planned) {
  if (planned.empty()) return;
  const std::vector<Share> shares = by_adapter(planned);
  compute(shares, Forward::Kernel::kFew);
  const int64_t vocab = model_->config.vocab_size;
  std::vector<int32_t> rows;
  std::vector<Sequence*> sequences;
  logits_.resize(std::max<size_t>(logits_.size(), shares.size() * vocab));
  for (size_t i = 0; i < shares.size(); ++i) {
    rows.push_back(static_cast<int32_t>(i));
    sequences.push_back(static_cast<Sequence*>(shares[i].sequence));
    sequences.back()->logits = std::span(logits_).subspan(i * vocab, vocab);
  }
  forward_.logits(rows, Forward::Kernel::kFew, logits_.data());
  for (const Share& share : shares) batcher_.computed(share);
  sample(sequences);
}

void Engine::prefill(const std::vector<Share>& planned) {
  if (planned.empty()) return;
  const std::vector<Share> shares = by_adapter(planned);
  compute(shares, Forward::Kernel::kMany);
  for (const Share& share : shares) batcher_.computed(share);

  std::vector<int32_t> last_rows;
  std::vector<Sequence*> complete, silent;
  int32_t row = 0;
  for (const Share& share : shares) {
    auto* sequence = static_cast<Sequence*>(share.sequence);
    if (sequence->request.echo) echo(share, row);
    row += share.count;
    if (!share.reaches_end()) continue;
    if (sequence->request.max_tokens == 0) {
      silent.push_back(sequence);
    } else {
      last_rows.push_back(row - 1);
      complete.push_back(sequence);
    }
  }
  for (Sequence* sequence : silent) {
    if (!sequence->ended) finish(*sequence, FinishReason::kLength, {}, {});
  }
  const int64_t vocab = model_->config.vocab_size;
  logits_.resize(std::max<size_t>(logits_.size(), complete.size() * vocab));
  // Few: there is one such row a prompt. A prompt's last row is computed so whatever its neighbours
  // are.
  forward_.logits(last_rows, Forward::Kernel::kFew, logits_.data());
  for (size_t i = 0; i < complete.size(); ++i) {
    complete[i]->logits = std::span(logits_).subspan(i * vocab, vocab);
  }
  std::erase_if(complete, [](const Sequence* sequence) { return sequence->ended; });
  sample(complete);
}

void Engine::echo(const Share& share, int32_t first_row) {
  auto& sequence = static_cast<Sequence&>(*share.sequence);
  Delta delta;
  delta.text = sequence.text.prompt_text();
  if (!sequence.wants_echo_rows()) {
    if (sequence.echoed == 0) delta.tokens = sequence.request.prompt;
    sequence.echoed = sequence.prompt_tokens;
  } else {
    if (sequence.echoed == 0) {
      delta.tokens.push_back(sequence.tokens[0]);
      delta.logprobs.push_back(sequence.text.entry(sequence.tokens[0], {}, {}));
      sequence.echoed = 1;
    }
    // Row i of the share tells how likely token first + i + 1 was. After a preemption some are
    // known already.
    const int32_t begin = std::max(share.first, sequence.echoed - 1);
    const int32_t end = std::min(share.first + share.count, sequence.prompt_tokens - 1);
    const int64_t vocab = model_->config.vocab_size;
    const auto at_once = static_cast<int32_t>(std::max<int64_t>(1, kLogitsBytes / 4 / vocab));
    for (int32_t from = begin; from < end; from += at_once) {
      std::vector<int32_t> rows;
      for (int32_t i = from; i < std::min(end, from + at_once); ++i)
        rows.push_back(first_row + i - share.first);
      logits_.resize(std::max<size_t>(logits_.size(), rows.size() * vocab));
      forward_.logits(rows, Forward::Kernel::kMany, logits_.data());
      std::vector<TokenLogprob> entries(rows.size());
      std::atomic<bool> finite = true;
      threads_.run(static_cast<int>(rows.size()), [&](int i, int) {
        const std::span<const float> row = std::span(logits_).subspan(i * vocab, vocab);
        const double log_sum = kernels::log_sum_exp(row);
        const int32_t token = sequence.tokens[from + i + 1];
        if (!std::isfinite(log_sum)) finite = false;
        entries[i] = sequence.text.entry(token, static_cast<float>(row[token] - log_sum),
                                         likeliest(row, *sequence.request.top_logprobs, log_sum));
      });
      if (!finite)
        return fail(sequence, base::internal("the model's logits are not finite for this prompt"));
      for (TokenLogprob& entry : entries) {
        delta.tokens.push_back(entry.token);
        delta.logprobs.push_back(std::move(entry));
      }
      sequence.echoed = std::min(end, from + at_once) + 1;
    }
  }
  if (!delta.text.empty() || !delta.tokens.empty()) sequence.listener->on_delta(std::move(delta));
}

void Engine::sample(const std::vector<Sequence*>& sequences) {
  threads_.run(static_cast<int>(sequences.size()), [&](int i, int) {
    Sequence& sequence = *sequences[i];
    sequence.choice = sequence.sampler.choose(sequence.logits, sequence.banned_now());
  });
  for (Sequence* sequence : sequences) apply(*sequence, sequence->choice);
}

void Engine::apply(Sequence& sequence, const Choice& choice) {
  if (!choice.finite) {
    return fail(sequence, base::internal(sequence.adapter ? "adapter " + sequence.adapter->id +
                                                                " gives logits that are not finite"
                                                          : "the model's logits are not finite"));
  }
  const Request& request = sequence.request;
  if (sequence.first_token_ms < 0) sequence.first_token_ms = clock_.steady_ms();
  sequence.tokens.push_back(choice.token);
  Delta delta;
  delta.tokens.push_back(choice.token);
  if (request.top_logprobs) {
    delta.logprobs.push_back(sequence.text.entry(choice.token, choice.logprob, choice.top));
  }
  if (std::ranges::find(request.stop_token_ids, choice.token) != request.stop_token_ids.end()) {
    return finish(sequence, FinishReason::kStop, std::to_string(choice.token), std::move(delta));
  }
  if (!request.ignore_eos && std::ranges::find(end_ids_, choice.token) != end_ids_.end()) {
    return finish(sequence, FinishReason::kStop, {}, std::move(delta));
  }
  delta.text = sequence.text.push(choice.token);
  if (sequence.text.stopped()) {
    return finish(sequence, FinishReason::kStop, sequence.text.stop_string(), std::move(delta));
  }
  if (sequence.generated() >= request.max_tokens) {
    return finish(sequence, FinishReason::kLength, {}, std::move(delta));
  }
  sequence.listener->on_delta(std::move(delta));
}

void Engine::finish(Sequence& sequence, FinishReason reason, std::string stop_reason, Delta last) {
  if (reason != FinishReason::kCancelled) {
    last.text += sequence.text.finish();
    // The end may hold a stop string that an unfinished character kept back.
    if (sequence.text.stopped() && reason == FinishReason::kLength) {
      reason = FinishReason::kStop;
      stop_reason = sequence.text.stop_string();
    }
    if (!last.text.empty() || !last.tokens.empty()) sequence.listener->on_delta(std::move(last));
  }
  Outcome outcome;
  outcome.reason = reason;
  outcome.stop_reason = std::move(stop_reason);
  end(sequence, std::move(outcome));
}

void Engine::fail(Sequence& sequence, base::Status error) {
  Outcome outcome;
  outcome.error = std::move(error);
  end(sequence, std::move(outcome));
}

void Engine::end(Sequence& sequence, Outcome outcome) {
  const int64_t now = clock_.steady_ms();
  const auto since = [&](int64_t at) {
    return static_cast<double>((at < 0 ? now : at) - sequence.submitted_ms);
  };
  outcome.prompt_tokens = sequence.prompt_tokens;
  outcome.completion_tokens = sequence.generated();
  outcome.cached_tokens = sequence.cached_tokens;
  outcome.attention = std::move(sequence.attention);
  outcome.attention_magnitudes =
      !outcome.attention.empty() &&
      forward_.has_signed_maps(sequence.adapter.get(),
                               static_cast<float>(sequence.request.lambda_scale()));
  outcome.queue_ms = since(sequence.first_step_ms);
  outcome.first_token_ms = since(sequence.first_token_ms);
  outcome.total_ms = since(now);
  sequence.ended = true;
  batcher_.remove(&sequence);
  const auto found = sequences_.find(sequence.handle);
  ended_.push_back(std::move(found->second));  // others of this step may still point to it
  sequences_.erase(found);
  {
    const std::lock_guard lock(mutex_);
    --live_;
  }
  sequence.listener->on_done(std::move(outcome));
}

void Engine::publish_load() {
  const std::lock_guard lock(mutex_);
  load_ = {static_cast<uint32_t>(batcher_.running()), static_cast<uint32_t>(batcher_.waiting()),
           blocks_.usage_ratio()};
}

}  // namespace dex::serve
