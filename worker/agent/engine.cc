#include "worker/agent/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "services/base/signals.h"

namespace dex::agent {

namespace {

constexpr int64_t kWrite_ms = 10'000;
constexpr size_t kMostOutgoing = 4096;
constexpr int64_t kEndByItself_ms = 2'000;
constexpr int kExitBrokenModel = 17;  // of dex-engine

base::Status lost(const std::string& base) {
  return base::unavailable("ENGINE_LOST", "the engine of " + base + " ended; it is started again");
}

base::Status status_of(const iv1::EngineReport::Error& error) {
  base::Status status(static_cast<base::Code>(error.code()), error.reason(), error.message());
  if (!error.field().empty()) {
    return std::move(status).with_violation(error.field(), error.message());
  }
  return status;
}

}  // namespace

Engine::Engine(Options options, const base::Clock& clock, WorkerMetrics& worker_metrics,
               InferenceMetrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      worker_metrics_(worker_metrics),
      metrics_(metrics),
      requests_(options_.most_requests, clock, metrics),
      texts_(options_.most_requests) {
  status_.set_base(options_.model.name);
  status_.set_state(iv1::EngineStatus::STATE_STARTING);
}

void Engine::run(const std::stop_token& stop) {
  int64_t backoff_ms = options_.first_backoff_ms;
  bool first = true;
  while (!stop.stop_requested()) {
    if (!first) worker_metrics_.engine_restarts.Increment();
    first = false;
    const int64_t started_ms = clock_.steady_ms();
    if (start_child()) {
      talk(stop);
      end_child(stop.stop_requested());
    }
    set_state(iv1::EngineStatus::STATE_DOWN);
    if (stop.stop_requested()) break;
    if (clock_.steady_ms() - started_ms > options_.healthy_ms) {
      backoff_ms = options_.first_backoff_ms;
    }
    spdlog::warn("engine of {}: next start in {} ms", base(), backoff_ms);
    base::wait_for_stop(stop, backoff_ms);
    backoff_ms = std::min(backoff_ms * 2, options_.last_backoff_ms);
  }
  requests_.fail_all(base::unavailable("SERVER_DRAINING", "this worker stops"));
  texts_.fail_all(base::unavailable("SERVER_DRAINING", "this worker stops"));
}

bool Engine::start_child() {
  auto pair = base::FrameChannel::pair();
  if (!pair.ok()) {
    spdlog::error("engine of {}: {}", base(), pair.status().to_string());
    return false;
  }
  base::Subprocess::Options child;
  child.program = options_.program;
  child.args = options_.args;
  child.inherit = {pair->second.get()};
  child.stdout_file = options_.log_file;
  child.stderr_file = options_.log_file;
  auto process = base::Subprocess::start(child);
  if (!process.ok()) {
    spdlog::error("engine of {}: {}", base(), process.status().to_string());
    return false;
  }
  process_ = std::move(process).value();
  channel_ = std::move(pair->first);
  {
    const std::lock_guard lock(mutex_);
    outgoing_ = std::make_shared<Outgoing>(kMostOutgoing);
  }
  set_state(iv1::EngineStatus::STATE_STARTING);
  iv1::EngineCommand command;
  auto& start = *command.mutable_start();
  start.set_model_dir(options_.model.folder.string());
  start.set_base(options_.model.name);
  start.set_threads(options_.threads);
  start.set_dtype(options_.dtype);
  start.set_base_weights_sha256(options_.model.weights_sha256);
  start.set_tokenizer_sha256(options_.model.tokenizer_sha256);
  start.set_chat_template_sha256(options_.model.chat_template_sha256);
  send(command);
  return true;
}

// Reads until the engine ends or we stop. A thread of its own writes, so that neither a client's
// thread nor the reader ever waits for an engine that does not read.
void Engine::talk(const std::stop_token& stop) {
  spdlog::info("engine of {}: process {} started", base(), process_->pid());
  const std::jthread writer([queue = outgoing_, channel = channel_.get()] {
    while (true) {
      const auto frame = queue->pop(60'000);
      if (!frame && queue->closed()) return;
      if (frame && !channel->write(*frame, kWrite_ms).ok()) {
        channel->shutdown();  // wakes the reader, which ends the engine
        return;
      }
    }
  });
  while (true) {
    const auto frame = channel_->read(-1, stop);
    iv1::EngineReport report;
    if (!frame.ok()) {
      if (!stop.stop_requested()) {
        spdlog::warn("engine of {}: {}", base(), frame.status().message());
      }
      break;
    }
    if (!report.ParseFromString(*frame) || report.report_case() == report.REPORT_NOT_SET) {
      spdlog::error("engine of {}: frame of {} bytes is no report", base(), frame->size());
      break;
    }
    take(report);
  }
  // Asked to stop, what is queued is still written; else there is nobody to read it.
  if (!stop.stop_requested()) channel_->shutdown();
  outgoing_->close();
}

void Engine::take(const iv1::EngineReport& report) {
  switch (report.report_case()) {
    case iv1::EngineReport::kReady:
      spdlog::info("engine of {} serves: {}, {} tokens at most", base(), report.ready().dtype(),
                   report.ready().max_model_len());
      broken_ = false;
      served_ = true;
      {
        const std::lock_guard order(adapter_order_);
        told_ = true;
        send_all(adapters_.engine_started());
      }
      {
        const std::lock_guard lock(mutex_);
        status_.set_dtype(report.ready().dtype());
        ready_ = report.ready();
      }
      set_state(iv1::EngineStatus::STATE_SERVING);
      break;
    case iv1::EngineReport::kTokens:
      if (!requests_.event(report.tokens().request(), report.tokens().event())) {
        cancel(report.tokens().request());
      }
      break;
    case iv1::EngineReport::kDone: {
      const auto& done = report.done();
      if (done.has_error()) {
        requests_.fail(done.request(), status_of(done.error()));
      } else {
        requests_.finish(done.request(), done.finish());
      }
      const std::lock_guard order(adapter_order_);
      send_all(adapters_.request_ended());
      break;
    }
    case iv1::EngineReport::kAdapter: {
      const auto& adapter = report.adapter();
      spdlog::info("engine of {}: adapter {} is {} {}", base(), adapter.id(),
                   dex::v1::Replica::State_Name(adapter.state()), adapter.error());
      if (adapter.state() == dex::v1::Replica::STATE_LOADED) {
        metrics_.adapter_load.Observe(adapter.seconds());
      } else if (adapter.state() == dex::v1::Replica::STATE_FAILED && !adapter.no_room()) {
        metrics_.adapter_load_failures.Increment();
      }
      {
        const std::lock_guard order(adapter_order_);
        send_all(adapters_.reported(adapter));
      }
      if (options_.changed) options_.changed();
      break;
    }
    case iv1::EngineReport::kLoad: {
      const std::lock_guard lock(mutex_);
      status_.set_running(report.load().running());
      status_.set_waiting(report.load().waiting());
      status_.set_kv_usage_ratio(report.load().kv_usage_ratio());
      break;
    }
    case iv1::EngineReport::kText: {
      const auto& text = report.text();
      if (text.has_error()) {
        texts_.finish(text.request(), status_of(text.error()));
      } else {
        texts_.finish(text.request(), text);
      }
      break;
    }
    case iv1::EngineReport::REPORT_NOT_SET:
      break;
  }
}

void Engine::end_child(bool orderly) {
  // First of all nobody waits any longer.
  set_state(iv1::EngineStatus::STATE_DOWN);
  const base::Status why =
      orderly ? base::unavailable("SERVER_DRAINING", "this worker stops") : lost(base());
  requests_.fail_all(why);
  texts_.fail_all(why);
  {
    const std::lock_guard order(adapter_order_);
    told_ = false;
  }
  adapters_.engine_lost();
  {
    const std::lock_guard lock(mutex_);
    outgoing_.reset();
  }
  if (orderly) {
    iv1::EngineCommand command;
    command.mutable_stop()->set_grace_ms(options_.stop_grace_ms);
    (void)channel_->write(command.SerializeAsString(), 1'000).ok();
    process_->wait(options_.stop_grace_ms);
  }
  channel_.reset();  // an engine whose channel is closed ends by itself, with a code that tells why
  process_->wait(kEndByItself_ms);
  const auto exit = process_->terminate(orderly ? 1'000 : 100);
  broken_ = !served_ && exit.signal == 0 && exit.code == kExitBrokenModel;
  spdlog::info("engine of {}: process {} ended with {}", base(), process_->pid(), exit.to_string());
  process_.reset();
}

std::optional<uint64_t> Engine::generate(const dex::v1::GenerateRequest& body,
                                         const std::string& reply_id,
                                         const iv1::DesiredAdapter& adapter,
                                         std::shared_ptr<ReplySink> sink) {
  if (const base::Status now = ready(); !now.ok()) {
    sink->fail(now);
    return std::nullopt;
  }
  const auto request = requests_.add(sink, adapter.id());
  if (!request) {
    sink->fail({base::Code::kResourceExhausted, "QUEUE_FULL",
                std::to_string(options_.most_requests) + " requests are open on this worker"});
    return std::nullopt;
  }
  if (adapter.id().empty()) {
    send_generate(*request, body, reply_id, "", {});
    return request;
  }
  const std::lock_guard order(adapter_order_);
  send_all(adapters_.want(adapter, [this, request = *request, body, reply_id,
                                    id = adapter.id()](const base::Status& ready) {
    send_generate(request, body, reply_id, id, ready);
  }));
  return request;
}

void Engine::send_generate(uint64_t request, const dex::v1::GenerateRequest& body,
                           const std::string& reply_id, const std::string& adapter,
                           const base::Status& adapter_ready) {
  if (!adapter_ready.ok()) {
    requests_.fail(request, adapter_ready);
    return;
  }
  if (!requests_.mark_sent(request)) return;  // cancelled while its adapter was loading
  iv1::EngineCommand command;
  auto& generate = *command.mutable_generate();
  generate.set_request(request);
  *generate.mutable_body() = body;
  generate.set_adapter(adapter);
  generate.set_id(reply_id);
  send(command);
}

base::Status Engine::ready() const {
  if (draining_) return base::unavailable("SERVER_DRAINING", "this worker stops");
  if (status().state() == iv1::EngineStatus::STATE_SERVING) return {};
  return base::unavailable("ENGINE_LOST", "the engine of " + base() + " is not ready yet");
}

void Engine::ask_text(iv1::EngineCommand::Text ask, TextTable::Answer answer) {
  if (const base::Status now = ready(); !now.ok()) return answer(now);
  const auto request = texts_.add(answer);
  if (!request) {
    return answer(
        base::Status(base::Code::kResourceExhausted, "QUEUE_FULL",
                     std::to_string(options_.most_requests) + " calls are open on this worker"));
  }
  iv1::EngineCommand command;
  ask.set_request(*request);
  *command.mutable_text() = std::move(ask);
  send(command);
}

void Engine::cancel(uint64_t request) {
  if (!requests_.sent(request)) {
    requests_.fail(request, {base::Code::kCancelled, "CLIENT_CANCELLED", "the client went away"});
  }
  iv1::EngineCommand command;
  command.mutable_cancel()->set_request(request);
  send(command);
}

void Engine::set_desired(const std::vector<iv1::DesiredAdapter>& desired) {
  const std::lock_guard order(adapter_order_);
  const auto frames = adapters_.set_desired(desired);
  if (told_) send_all(frames);  // else a fresh engine gets all of them when it is ready
}

iv1::EngineStatus Engine::status() const {
  const auto adapters = adapters_.status();
  const std::lock_guard lock(mutex_);
  iv1::EngineStatus status = status_;
  for (const auto& adapter : adapters) *status.add_adapters() = adapter;
  return status;
}

VllmMetrics::Engine Engine::figures() const {
  const std::lock_guard lock(mutex_);
  VllmMetrics::Engine figures;
  figures.base = base();
  if (status_.state() != iv1::EngineStatus::STATE_SERVING) return figures;
  figures.most_running = ready_.max_running();
  figures.running = status_.running();
  figures.waiting = status_.waiting();
  figures.kv_usage_ratio = status_.kv_usage_ratio();
  figures.kv_block_tokens = ready_.kv_block_tokens();
  figures.kv_blocks = ready_.kv_blocks();
  return figures;
}

void Engine::send(const iv1::EngineCommand& command) {
  std::shared_ptr<Outgoing> queue;
  {
    const std::lock_guard lock(mutex_);
    queue = outgoing_;
  }
  // Without an engine there is nobody to tell: its requests have failed, and a fresh one gets the
  // whole list of adapters. A full queue means an engine that has not read for thousands of frames.
  // What came between the two is told here.
  std::string frame = command.SerializeAsString();
  // The channel takes no larger one, and a write that fails ends the engine for everybody.
  const bool fits = frame.size() <= base::FrameChannel::kMaxBytes;
  if (fits && queue && queue->try_push(std::move(frame))) return;
  const base::Status why =
      fits ? lost(base())
           : base::bad_field(
                 "CONTEXT_LENGTH_EXCEEDED", "request",
                 "must fit a frame of " + std::to_string(base::FrameChannel::kMaxBytes) + " bytes");
  if (command.has_generate()) requests_.fail(command.generate().request(), why);
  if (command.has_text()) texts_.finish(command.text().request(), why);
}

void Engine::send_all(const AdapterBook::Frames& frames) {
  for (const auto& frame : frames) send(frame);
}

void Engine::set_state(iv1::EngineStatus::State state) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.state() == state) return;
    status_.set_state(state);
    if (state != iv1::EngineStatus::STATE_SERVING) {
      status_.set_running(0);
      status_.set_waiting(0);
      status_.set_kv_usage_ratio(0);
    }
  }
  if (options_.changed) options_.changed();
}

}  // namespace dex::agent
