#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "services/base/bounded_queue.h"
#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/subprocess.h"
#include "worker/agent/adapter_book.h"
#include "worker/agent/metrics.h"
#include "worker/agent/model_list.h"
#include "worker/agent/request_table.h"
#include "worker/agent/text_table.h"

namespace dex::agent {

// Keeps a dex-engine running for one base model and passes generations to it. When the process ends
// its requests fail at once with UNAVAILABLE ENGINE_LOST and it is started again, after 1 s, then
// 2, … up to 60 s. run() belongs to one thread that lives as long as the engine may (the child dies
// with it); everything else is thread-safe and never blocks. An engine that says, by its exit code,
// that its model can't be loaded is tried again like any other, and broken() is true meanwhile.
class Engine {
 public:
  struct Options {
    std::string program = "dex-engine";
    std::vector<std::string> args = {"serve", "--frames-fd", "3"};
    BaseModelEntry model;
    uint32_t threads = 0;            // 0: all cores
    std::string dtype;               // bf16, f32, int8, int4; empty: as stored
    std::filesystem::path log_file;  // its stdout and stderr, appended; empty: the agent's
    size_t most_requests = 1024;     // open at a time
    int64_t first_backoff_ms = 1'000;
    int64_t last_backoff_ms = 60'000;
    int64_t healthy_ms = 60'000;  // served so long: the next back-off starts from the first
    int64_t stop_grace_ms = 10'000;
    std::function<void()> changed;  // its state or an adapter's is another; must not block
  };

  Engine(Options options, const base::Clock& clock, WorkerMetrics& worker_metrics,
         InferenceMetrics& metrics);

  // Until stop; then the engine is told to end and waited for.
  void run(const std::stop_token& stop);

  // Hands a request over; the answer comes through the sink, failures included. `adapter` without
  // an id means the base. The number is for cancel(); nullopt when the request failed already.
  std::optional<uint64_t> generate(const dex::v1::GenerateRequest& body,
                                   const std::string& reply_id, const iv1::DesiredAdapter& adapter,
                                   std::shared_ptr<ReplySink> sink);
  // The client is gone. The sink still gets its end.
  void cancel(uint64_t request);

  // Asks the engine's tokenizer; its number in `ask` is set here. The answer comes on the engine's
  // reader, or at once when there is no engine to ask.
  void ask_text(iv1::EngineCommand::Text ask, TextTable::Answer answer);

  // The whole list of the scheduler for this base, with absolute paths.
  void set_desired(const std::vector<iv1::DesiredAdapter>& desired);
  // From now on new requests are refused with UNAVAILABLE SERVER_DRAINING.
  void refuse_new() { draining_ = true; }

  [[nodiscard]] iv1::EngineStatus status() const;
  // Its state for VllmMetrics; what it can hold is 0 unless it serves.
  [[nodiscard]] VllmMetrics::Engine figures() const;
  void add_adapters(AdapterUse& use) const { requests_.add_adapters(use); }
  // It has never served, and its last start ended because the model's files can't be loaded.
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] size_t open_requests() const { return requests_.size(); }
  [[nodiscard]] const std::string& base() const { return options_.model.name; }

 private:
  using Outgoing = base::BoundedQueue<std::string>;

  bool start_child();
  void talk(const std::stop_token& stop);
  void take(const iv1::EngineReport& report);
  void end_child(bool orderly);
  void send(const iv1::EngineCommand& command);
  void send_all(const AdapterBook::Frames& frames);
  // OK, or why no request can be taken now.
  [[nodiscard]] base::Status ready() const;
  void send_generate(uint64_t request, const dex::v1::GenerateRequest& body,
                     const std::string& reply_id, const std::string& adapter,
                     const base::Status& adapter_ready);
  void set_state(iv1::EngineStatus::State state);

  const Options options_;
  const base::Clock& clock_;
  WorkerMetrics& worker_metrics_;
  InferenceMetrics& metrics_;
  AdapterBook adapters_{[this](const std::string& id) { return requests_.uses(id); }};
  RequestTable requests_;
  TextTable texts_;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> broken_ = false;
  bool served_ = false;  // of run()'s thread

  // Of run()'s thread.
  std::unique_ptr<base::Subprocess> process_;
  std::unique_ptr<base::FrameChannel> channel_;

  // Held from a change of adapters_ until its frames, and the generations that it lets go, are in
  // the queue: the engine hears of them in that order, and never of a generation behind the unload
  // of its adapter. Taken before any other lock.
  std::mutex adapter_order_;
  bool told_ = false;  // guarded by adapter_order_: the engine has had engine_started()'s frames
  mutable std::mutex mutex_;
  std::shared_ptr<Outgoing> outgoing_;    // guarded by mutex_; null while no engine runs
  iv1::EngineStatus status_;              // guarded by mutex_, without adapters
  iv1::EngineReport::EngineReady ready_;  // guarded by mutex_; of the last engine
};

}  // namespace dex::agent
