#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "services/base/clock.h"
#include "services/base/status.h"
#include "services/text/tokenizer.h"
#include "worker/serve/batcher.h"
#include "worker/serve/forward.h"
#include "worker/serve/request.h"
#include "worker/serve/sampler.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {

// Serves one base model and its adapters: the step loop of continuous batching. One thread runs it
// and owns sequences, KV cache and batch; everybody else hands requests in and gets deltas from
// that thread.
class Engine {
 public:
  struct Options {
    int threads = 0;             // 0: all cores
    int64_t kv_cache_bytes = 0;  // 0: 1 GiB, but at least one whole context
    int32_t max_running = 32;
    int32_t max_waiting = 1024;            // more are refused: RESOURCE_EXHAUSTED QUEUE_FULL
    int32_t chunk_tokens = 128;            // of prompts, a step
    int64_t longest_timeout_ms = 600'000;  // that a request may ask for
  };
  struct Load {
    uint32_t running = 0;
    uint32_t waiting = 0;
    double kv_usage_ratio = 0;
    bool operator==(const Load&) const = default;
  };

  // `tokenizer` may be null (ids only); it and `clock` outlive this object.
  Engine(std::shared_ptr<const ServingModel> model, const text::Tokenizer* tokenizer,
         const Options& options, const base::Clock& clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- any thread ----

  // Takes a request; its listener hears of it from the next step on. A refusal (validate(),
  // check_lambda_scale() of lambda_scale.h, a full queue, draining) is the result, and the listener
  // is never called. `handle` is unique among live requests; `adapter` null: the base. Who scales λ
  // brings an adapter whose branch is apart.
  base::Status submit(uint64_t handle, Request request,
                      std::shared_ptr<const ServingAdapter> adapter,
                      std::shared_ptr<Listener> listener);
  // Ends a request at the next step with CANCELLED; its blocks are free then. Unknown handles are
  // ignored.
  void cancel(uint64_t handle);
  // From here on submit() refuses; what runs goes on.
  void drain();
  [[nodiscard]] Load load() const;
  [[nodiscard]] bool idle() const;             // no request is live
  [[nodiscard]] int64_t memory_bytes() const;  // weights and KV cache, when all of it is used
  [[nodiscard]] int32_t max_running() const { return options_.max_running; }
  [[nodiscard]] int32_t kv_block_tokens() const { return blocks_.block_tokens(); }
  [[nodiscard]] int32_t kv_blocks() const { return blocks_.block_count(); }
  [[nodiscard]] RequestLimits limits() const { return limits_; }
  [[nodiscard]] int64_t preemptions() const { return preemptions_; }
  [[nodiscard]] int threads() const { return threads_.threads(); }

  // ---- the step thread ----

  // Steps until stopped; requests that are left end with UNAVAILABLE. Waits without load.
  void run(const std::stop_token& stop);
  // Steps until nothing is left to do; `after_step`, unless it is empty, is called after each.
  void run_until_idle(const std::function<void()>& after_step = {});
  // As Forward's: what is computed from now on raises `extremes`; null: nothing is watched.
  void watch(ActivationExtremes* extremes) { forward_.watch(extremes); }

 private:
  struct Sequence;
  struct Incoming {
    uint64_t handle = 0;
    std::unique_ptr<Sequence> sequence;  // null: cancel
  };

  bool take_incoming();  // false: nothing is running and nothing came
  void expire();
  void step();
  void decode(const std::vector<Share>& shares);
  void prefill(const std::vector<Share>& shares);
  void compute(const std::vector<Share>& shares, Forward::Kernel kernel);
  void sample(const std::vector<Sequence*>& sequences);
  void apply(Sequence& sequence, const Choice& choice);
  void echo(const Share& share, int32_t first_row);
  void finish(Sequence& sequence, FinishReason reason, std::string stop_reason, Delta last);
  void fail(Sequence& sequence, base::Status error);
  void end(Sequence& sequence, Outcome outcome);
  void publish_load();

  std::shared_ptr<const ServingModel> model_;
  const text::Tokenizer* tokenizer_;
  Options options_;
  const base::Clock& clock_;
  std::vector<int32_t> end_ids_;  // of a sequence, as the model's folder names them; constant

  kernels::ThreadPool threads_;
  KvPool pool_;
  BlockManager blocks_;
  Batcher batcher_;
  Forward forward_;
  RequestLimits limits_;
  std::vector<float> logits_;
  std::vector<Segment> segments_;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  std::vector<std::unique_ptr<Sequence>> ended_;  // until the step is over

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::vector<Incoming> incoming_;
  size_t live_ = 0;  // submitted and not ended
  bool draining_ = false;
  Load load_;
  std::atomic<int64_t> preemptions_{0};
};

}  // namespace dex::serve
