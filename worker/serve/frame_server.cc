#include "worker/serve/frame_server.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "services/base/bounded_queue.h"
#include "services/base/serving_limits.h"
#include "services/base/version.h"
#include "worker/serve/adapter_proof.h"
#include "worker/serve/adapter_table.h"
#include "worker/serve/engine.h"
#include "worker/serve/lambda_scale.h"
#include "worker/serve/serving_model.h"
#include "worker/serve/text_calls.h"
#include "worker/serve/wire.h"

namespace dex::serve {
namespace {

using wire::frames::EngineCommand;
using wire::frames::EngineReport;
namespace pb = dex::v1;

constexpr int64_t kStartTimeoutMs = 60'000;
constexpr int64_t kWriteTimeoutMs = 10'000;
constexpr int64_t kLoadReportMs = 1'000;
constexpr size_t kMostOutgoing = 8192;
constexpr size_t kMostLoads = 4096;

// Frames on their way to the agent. An agent that takes none for ten seconds is gone as far as we
// can tell: then everything ends, rather than that a step waits for ever.
class Outgoing {
 public:
  explicit Outgoing(base::FrameChannel& channel) : channel_(channel) {}

  void push(const EngineReport& report) {
    if (!queue_.push(report.SerializeAsString(), kWriteTimeoutMs))
      channel_.shutdown();  // wakes the reader
  }
  // Until closed and empty. `idle` is called at least once a second and may give a frame.
  template <typename Idle>
  void write_all(Idle&& idle) {
    for (;;) {
      if (auto frame = queue_.pop(kLoadReportMs)) {
        if (!channel_.write(*frame, kWriteTimeoutMs).ok()) {
          queue_.close();
          channel_.shutdown();
          return;
        }
      } else if (queue_.closed()) {
        return;
      }
      if (std::optional<EngineReport> report = idle()) {
        if (!channel_.write(report->SerializeAsString(), kWriteTimeoutMs).ok()) channel_.shutdown();
      }
    }
  }
  void close() { queue_.close(); }

 private:
  base::FrameChannel& channel_;
  base::BoundedQueue<std::string> queue_{kMostOutgoing};
};

// What a request's tokens become on the wire.
class FrameListener final : public Listener {
 public:
  FrameListener(uint64_t request, bool token_ids, Outgoing& outgoing)
      : request_(request), token_ids_(token_ids), outgoing_(outgoing) {}

  void on_delta(Delta delta) override {
    EngineReport report;
    report.mutable_tokens()->set_request(request_);
    auto& out = *report.mutable_tokens()->mutable_event()->mutable_delta();
    wire::write(delta, token_ids_, out);
    // A token that completes no character, and whose id nobody wants, says nothing.
    if (!out.text().empty() || out.token_ids_size() > 0 || out.logprobs_size() > 0)
      outgoing_.push(report);
  }
  void on_done(Outcome outcome) override {
    EngineReport report;
    report.mutable_done()->set_request(request_);
    if (outcome.error.ok()) {
      wire::write(outcome, *report.mutable_done()->mutable_finish());
    } else {
      wire::write(outcome.error, *report.mutable_done()->mutable_error());
    }
    outgoing_.push(report);
  }

 private:
  uint64_t request_;
  bool token_ids_;
  Outgoing& outgoing_;
};

class Server {
 public:
  Server(base::FrameChannel& channel, const base::StopSignals& signals, const base::Clock& clock,
         base::RandomSource& random)
      : channel_(channel), signals_(signals), clock_(clock), random_(random), outgoing_(channel) {}

  int run() {
    const auto start = await_start();
    if (!start) return 1;
    if (!load(*start)) return kBrokenModel;
    std::jthread writer([this] { outgoing_.write_all([this] { return load_report(); }); });
    std::jthread loader([this](const std::stop_token& stop) { load_adapters(stop); });
    std::jthread stepper([this](const std::stop_token& stop) { engine_->run(stop); });
    ready();
    const int code = read();
    loader.request_stop();  // a proof that waits for the stepper would wait for ever
    // Streams first, so that their ends are still written.
    stepper.request_stop();
    stepper.join();
    loads_.close();
    loader.join();
    for (const uint64_t request : deferred_)
      refuse(request, base::unavailable("SERVER_DRAINING", "the engine is stopping"));
    outgoing_.close();
    writer.join();
    return code;
  }

 private:
  std::optional<EngineCommand::EngineStart> await_start() {
    const auto frame = channel_.read(kStartTimeoutMs, signals_.token());
    EngineCommand command;
    if (!frame.ok()) {
      spdlog::error("no start frame: {}", frame.status().message());
    } else if (!command.ParseFromString(*frame) || !command.has_start()) {
      spdlog::error("the first frame must be a start, got {} bytes of something else",
                    frame->size());
    } else {
      return command.start();
    }
    return std::nullopt;
  }

  bool load(const EngineCommand::EngineStart& start) {
    const int64_t began = clock_.steady_ms();
    base_ = start.base();
    // A tokenizer takes a tenth of a second, and a core is free while weights are looked through.
    auto loading =
        std::async(std::launch::async, [&start] { return TextModel::load(start.model_dir()); });
    try {
      model_ = load_serving_model(start.model_dir(), parse_dtype(start.dtype()),
                                  start.base_weights_sha256());
    } catch (const std::exception& error) {
      spdlog::error("model {}: {}", base_, error.what());
      return false;
    }
    auto text = loading.get();
    if (!text.ok()) {
      spdlog::error("model {}: {}", base_, text.status().message());
      return false;
    }
    text_ = std::move(text).value();
    hashes_.tokenizer_sha256 =
        text_.tokenizer ? text_.tokenizer->sha256() : start.tokenizer_sha256();
    hashes_.chat_template_sha256 =
        text_.chat_template ? text_.chat_template->sha256() : start.chat_template_sha256();
    if (!same("tokenizer.json", start.tokenizer_sha256(), hashes_.tokenizer_sha256) ||
        !same("chat template", start.chat_template_sha256(), hashes_.chat_template_sha256)) {
      return false;
    }
    adapters_ = std::make_unique<AdapterTable>(start.adapter_bytes() > 0 ? start.adapter_bytes()
                                                                         : base::kAdapterBytes);
    engine_ = std::make_unique<Engine>(model_, text_.tokenizer.get(),
                                       Engine::Options{.threads = static_cast<int>(start.threads()),
                                                       .kv_cache_bytes = start.kv_cache_bytes()},
                                       clock_);
    prover_ = std::make_unique<AdapterProver>(*engine_);
    spdlog::info("model {} loaded in {} ms: {}, context {}, KV cache {} tokens", base_,
                 clock_.steady_ms() - began, dtype(), engine_->limits().context_tokens,
                 engine_->limits().cache_tokens);
    return true;
  }

  bool same(const char* what, const std::string& expected, const std::string& found) const {
    if (expected.empty() || expected == found) return true;
    spdlog::error("model {}: {} has sha256 {}, expected {}", base_, what, found, expected);
    return false;
  }

  [[nodiscard]] const char* dtype() const { return dtype_name(*model_); }

  void ready() {
    EngineReport report;
    auto& out = *report.mutable_ready();
    out.set_version(std::string(base::version()));
    out.set_dtype(dtype());
    out.set_max_model_len(engine_->limits().context_tokens);
    out.set_memory_bytes(engine_->memory_bytes());
    out.set_max_running(static_cast<uint32_t>(engine_->max_running()));
    out.set_kv_block_tokens(static_cast<uint32_t>(engine_->kv_block_tokens()));
    out.set_kv_blocks(engine_->kv_blocks());
    outgoing_.push(report);
  }

  int read() {
    for (;;) {
      const auto frame = channel_.read(-1, signals_.token());
      if (!frame.ok()) {
        if (signals_.token().stop_requested() || frame.status().reason() == "CHANNEL_CLOSED") {
          spdlog::info("engine of {} ends: {}", base_, frame.status().message());
          return 0;
        }
        spdlog::error("engine of {} ends: {}", base_, frame.status().message());
        return 1;
      }
      EngineCommand command;
      if (!command.ParseFromString(*frame)) {
        spdlog::error("engine of {} ends: a frame of {} bytes is no command", base_, frame->size());
        return 1;
      }
      if (command.has_stop()) return drain(command.stop().grace_ms());
      take(command);
    }
  }

  void take(const EngineCommand& command) {
    switch (command.command_case()) {
      case EngineCommand::kGenerate:
        return generate(command.generate());
      case EngineCommand::kText:
        return answer_text(command.text());
      case EngineCommand::kCancel:
        return cancel(command.cancel().request());
      case EngineCommand::kSetAdapter:
        if (!loads_.try_push(command)) {
          report_adapter(command.set_adapter(), pb::Replica::STATE_FAILED,
                         "more than " + std::to_string(kMostLoads) + " adapters wait to be loaded");
        }
        return;
      default:
        spdlog::warn("engine of {}: unexpected command {}", base_,
                     static_cast<int>(command.command_case()));
    }
  }

  // Running requests may end; what is left at the end of the grace is cut by Engine::run.
  int drain(int64_t grace_ms) {
    spdlog::info("engine of {} drains for at most {} ms", base_, grace_ms);
    engine_->drain();
    const int64_t end = clock_.steady_ms() + grace_ms;
    while (!idle() && clock_.steady_ms() < end) {
      if (base::wait_for_stop(signals_.token(), 20)) break;
    }
    return 0;
  }

  bool idle() {
    const std::lock_guard lock(requests_mutex_);
    return deferred_.empty() && engine_->idle();
  }

  void generate(const EngineCommand::Generate& in) {
    const std::lock_guard lock(requests_mutex_);
    if (waits_for_apart(in)) return defer(in);
    if (const base::Status refused = start_request(in); !refused.ok())
      refuse(in.request(), refused);
  }

  void answer_text(const EngineCommand::Text& in) {
    EngineReport report;
    serve::answer_text(in, text_, engine_->limits(), *report.mutable_text());
    outgoing_.push(report);
  }

  void cancel(uint64_t request) {
    const std::lock_guard lock(requests_mutex_);
    if (deferred_.erase(request) == 0) return engine_->cancel(request);
    EngineReport report;
    report.mutable_done()->set_request(request);
    Outcome outcome;
    outcome.reason = FinishReason::kCancelled;
    wire::write(outcome, *report.mutable_done()->mutable_finish());
    outgoing_.push(report);
  }

  void refuse(uint64_t request, const base::Status& why) {
    EngineReport report;
    report.mutable_done()->set_request(request);
    wire::write(why, *report.mutable_done()->mutable_error());
    outgoing_.push(report);
  }

  // Whether the request scales λ of an adapter whose branch has not been taken apart yet.
  [[nodiscard]] bool waits_for_apart(const EngineCommand::Generate& in) const {
    const double scale = in.body().dex_lambda_scale();
    const bool scaled = in.body().has_dex_lambda_scale() && scale >= 0 && scale < 1;
    if (!scaled || in.adapter().empty()) return false;
    const auto adapter = adapters_->find(in.adapter());
    return adapter != nullptr && adapter->is_folded() &&
           adapters_->find_apart(in.adapter()) == nullptr;
  }

  // Such a request goes through the loader's queue: the disk must not hold up the others.
  void defer(const EngineCommand::Generate& in) {
    EngineCommand command;
    *command.mutable_generate() = in;
    if (loads_.try_push(std::move(command))) {
      deferred_.insert(in.request());
    } else {
      refuse(in.request(), base::Status(base::Code::kResourceExhausted, "QUEUE_FULL",
                                        "more than " + std::to_string(kMostLoads) +
                                            " adapters wait to be loaded; try again later"));
    }
  }

  // Of the loader's thread.
  void generate_apart(const EngineCommand::Generate& in) {
    {
      const std::lock_guard lock(requests_mutex_);
      if (!deferred_.contains(in.request())) return;  // cancelled
    }
    base::Status refused = make_apart(in.adapter());
    const std::lock_guard lock(requests_mutex_);
    if (deferred_.erase(in.request()) == 0) return;
    if (refused.ok()) refused = start_request(in);
    if (!refused.ok()) refuse(in.request(), refused);
  }

  // An adapter that has gone meanwhile is no error here: start_request() finds none.
  base::Status make_apart(const std::string& id) {
    const int64_t began = clock_.steady_ms();
    try {
      adapters_->make_apart(id, [&](std::shared_ptr<const ServingAdapter> folded) {
        auto apart = load_branch_apart(std::move(folded), *model_);
        spdlog::info("adapter {} has its branch apart after {} s, {} bytes more", id,
                     clock_.seconds_since(began), apart->bytes);
        return apart;
      });
    } catch (const NoRoom& error) {
      spdlog::warn("adapter {}: {}", id, error.what());
      return base::Status(base::Code::kResourceExhausted, "ADAPTER_SLOTS_FULL",
                          "dex_lambda_scale needs weights of adapter " + id +
                              " that this engine has no room for; unload others, or leave it out");
    } catch (const std::exception& error) {
      spdlog::warn("adapter {}: {}", id, error.what());
      return base::Status(
          base::Code::kDataLoss, "ARTIFACT_CORRUPT",
          "adapter " + id + " can't be read again for dex_lambda_scale; load it once more");
    }
    return {};
  }

  // With requests_mutex_ held.
  base::Status start_request(const EngineCommand::Generate& in) {
    std::shared_ptr<const ServingAdapter> adapter;
    if (!in.adapter().empty()) {
      adapter = adapters_->find(in.adapter());
      if (adapter == nullptr) return not_loaded(in.adapter());
    }
    uint64_t seed = 0;
    random_.fill({reinterpret_cast<uint8_t*>(&seed), sizeof(seed)});
    DEX_ASSIGN_OR_RETURN(Request request,
                         wire::read_request(in.body(), text_, engine_->limits(), seed));
    DEX_RETURN_IF_ERROR(validate(request, engine_->limits()));
    DEX_RETURN_IF_ERROR(check_lambda_scale(request, adapter.get()));
    if (needs_branch_apart(request, adapter.get())) {
      adapter = adapters_->find_apart(in.adapter());
      if (adapter == nullptr) return not_loaded(in.adapter());  // replaced a moment ago
    }
    send_start(in, adapter.get(), request);
    return engine_->submit(
        in.request(), std::move(request), std::move(adapter),
        std::make_shared<FrameListener>(in.request(), in.body().return_token_ids(), outgoing_));
  }

  static base::Status not_loaded(const std::string& adapter) {
    return base::unavailable("ADAPTER_LOADING",
                             "adapter " + adapter + " is not loaded in this engine yet");
  }

  void send_start(const EngineCommand::Generate& in, const ServingAdapter* adapter,
                  const Request& request) {
    EngineReport report;
    report.mutable_tokens()->set_request(in.request());
    auto& start = *report.mutable_tokens()->mutable_event()->mutable_start();
    start.set_id(in.id());
    start.set_model(adapter != nullptr ? adapter->id : base_);
    start.set_seed(request.sampling.seed);
    const int64_t now = clock_.now_ms();
    start.mutable_create_time()->set_seconds(now / 1000);
    start.mutable_create_time()->set_nanos(static_cast<int32_t>(now % 1000 * 1'000'000));
    std::string fingerprint = "dex-" + std::string(base::version()) + "-" + dtype() + "-" +
                              model_->weights_sha256.substr(0, 12);
    // Sums of rows run in another order than those of panels (load_serving_model).
    if (!model_->quantized && !model_->panels) fingerprint += "-rows";
    if (adapter != nullptr) {
      auto& used = *start.mutable_adapter();
      used.set_id(adapter->id);
      used.set_content_sha256(adapter->content_sha256);
      used.set_version(adapter->content_sha256.substr(0, 12));
      if (adapter->has_lambda) used.set_dex_lambda_scale(request.lambda_scale());
      fingerprint += "-" + used.version();
    }
    start.set_system_fingerprint(fingerprint);
    outgoing_.push(report);
  }

  void load_adapters(const std::stop_token& stop) {
    while (!loads_.closed()) {
      const auto command = loads_.pop(60'000);
      if (!command) continue;
      if (command->has_generate()) {
        generate_apart(command->generate());
      } else {
        const auto& adapter = command->set_adapter();
        adapter.present() ? load_adapter(adapter, stop) : unload_adapter(adapter);
      }
    }
  }

  void load_adapter(const EngineCommand::SetAdapter& in, const std::stop_token& stop) {
    const int64_t began = clock_.steady_ms();
    try {
      auto adapter =
          load_serving_adapter(in.path(), in.id(), in.content_sha256(), *model_, hashes_);
      const int64_t bytes = adapter->bytes;
      const auto proof = proof_of(adapter, in, stop);
      adapters_->put(std::move(adapter));
      const double seconds = clock_.seconds_since(began);
      spdlog::info("adapter {} loaded in {} s, {} bytes", in.id(), seconds, bytes);
      report_loaded(in, bytes, seconds, proof);
    } catch (const NoRoom& error) {
      spdlog::info("adapter {} waits for room: {}", in.id(), error.what());
      EngineReport report = adapter_report(in, pb::Replica::STATE_FAILED, error.what());
      report.mutable_adapter()->set_no_room(true);
      outgoing_.push(report);
    } catch (
        const std::exception& error) {  // whatever is wrong with it ends nobody else's requests
      spdlog::warn("adapter {} refused: {}", in.id(), error.what());
      report_adapter(in, pb::Replica::STATE_FAILED, error.what());
    }
  }

  // None where the engine is too busy: a load does not fail for that.
  std::optional<AdapterProof> proof_of(const std::shared_ptr<const ServingAdapter>& adapter,
                                       const EngineCommand::SetAdapter& in,
                                       const std::stop_token& stop) {
    try {
      const AdapterProof proof = prover_->prove(adapter, in.path(), stop);
      spdlog::info("adapter {} changes a log-probability by up to {}", in.id(),
                   proof.max_logprob_change);
      return proof;
    } catch (const Unproven& busy) {
      spdlog::warn("adapter {} is not proven: {}", in.id(), busy.what());
      return std::nullopt;
    }
  }

  void unload_adapter(const EngineCommand::SetAdapter& in) {
    const auto gone = [this, in] { report_adapter(in, pb::Replica::STATE_UNSPECIFIED, {}); };
    if (!adapters_->remove(in.id(), gone)) gone();
  }

  static EngineReport adapter_report(const EngineCommand::SetAdapter& in, pb::Replica::State state,
                                     const std::string& error) {
    EngineReport report;
    auto& out = *report.mutable_adapter();
    out.set_id(in.id());
    out.set_content_sha256(in.content_sha256());
    out.set_state(state);
    out.set_error(error);
    return report;
  }
  void report_adapter(const EngineCommand::SetAdapter& in, pb::Replica::State state,
                      const std::string& error) {
    outgoing_.push(adapter_report(in, state, error));
  }
  void report_loaded(const EngineCommand::SetAdapter& in, int64_t bytes, double seconds,
                     const std::optional<AdapterProof>& proof) {
    EngineReport report = adapter_report(in, pb::Replica::STATE_LOADED, {});
    auto& out = *report.mutable_adapter();
    out.set_bytes(bytes);
    out.set_seconds(seconds);
    if (proof) {
      out.mutable_proof()->set_tensors_expected(proof->tensors);
      out.mutable_proof()->set_tensors_matched(proof->tensors);
      out.mutable_proof()->set_probe_tokens(proof->probe_tokens);
      out.mutable_proof()->set_max_logprob_change(proof->max_logprob_change);
      out.mutable_proof()->set_verdict(proof->acts() ? pb::AdapterProof::VERDICT_PROVEN
                                                     : pb::AdapterProof::VERDICT_NO_EFFECT);
    }
    outgoing_.push(report);
  }

  // At most once a second, and only what is new.
  std::optional<EngineReport> load_report() {
    const int64_t now = clock_.steady_ms();
    if (now - load_sent_ms_ < kLoadReportMs) return std::nullopt;
    const Engine::Load load = engine_->load();
    const int64_t bytes = adapters_->bytes();
    if (load == load_sent_ && bytes == bytes_sent_) return std::nullopt;
    load_sent_ms_ = now;
    load_sent_ = load;
    bytes_sent_ = bytes;
    EngineReport report;
    auto& out = *report.mutable_load();
    out.set_running(load.running);
    out.set_waiting(load.waiting);
    out.set_kv_usage_ratio(load.kv_usage_ratio);
    out.set_adapter_bytes(bytes);
    return report;
  }

  base::FrameChannel& channel_;
  const base::StopSignals& signals_;
  const base::Clock& clock_;
  base::RandomSource& random_;
  std::string base_;
  std::shared_ptr<const ServingModel> model_;
  TextModel text_;
  TextHashes hashes_;
  Outgoing outgoing_;
  base::BoundedQueue<EngineCommand> loads_{kMostLoads};  // and requests that need one
  // Guards what starts a request (text_, random_), so that reader and loader take turns, and:
  std::mutex requests_mutex_;
  std::set<uint64_t> deferred_;  // requests in loads_
  // Of the writer's thread.
  int64_t load_sent_ms_ = 0;
  Engine::Load load_sent_;
  int64_t bytes_sent_ = 0;
  // Last, so that they go first: leaving adapters still report through outgoing_.
  std::unique_ptr<AdapterTable> adapters_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AdapterProver> prover_;  // of the loader's thread
};

}  // namespace

int serve_frames(base::FrameChannel& channel, const base::StopSignals& signals,
                 const base::Clock& clock, base::RandomSource& random) {
  return Server(channel, signals, clock, random).run();
}

}  // namespace dex::serve
