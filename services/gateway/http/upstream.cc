#include "services/gateway/http/upstream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "services/rpc/call.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"

namespace dex::gateway::http {

namespace {

// What gRPC takes as a value; it aborts the process on anything else.
bool is_metadata(const std::string& value) {
  return std::all_of(value.begin(), value.end(),
                     [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

// Outlives every call, so that no channel dies inside a callback (jobs.md §9).
struct Upstream::Shared {
  std::shared_ptr<grpc::Channel> channel;
  std::mutex mutex;
  std::condition_variable idle;
  int calls = 0;  // guarded by mutex

  void count(int change) {
    const std::lock_guard lock(mutex);
    calls += change;
    // Under the lock: the waiting destructor may otherwise be through before this touches `idle`.
    if (calls == 0) idle.notify_all();
  }
};

// One call of any kind, as a stream in both directions. It holds itself from open() to OnDone.
//
// Writes and reads are started from any thread, which gRPC allows under a hold only; the hold is
// given back when the last read has failed, and from then on nothing is started. So a call whose
// reader has gone must still be read once more: cancel() does.
class Upstream::Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public std::enable_shared_from_this<Call> {
 public:
  explicit Call(Shared& shared) : place_{shared} { shared.count(1); }

  grpc::ClientContext& context() { return context_; }
  // Set before open(). Without on_message the one message goes to on_end.
  std::function<void(grpc::ByteBuffer)> on_message;
  std::function<void(grpc::Status, grpc::ByteBuffer, Headers)> on_end;

  void open(const std::string& path) {
    self_ = shared_from_this();
    grpc::GenericStub(place_.shared.channel).PrepareBidiStreamingCall(&context_, path, {}, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void send(grpc::ByteBuffer message, std::function<void(bool ok)> on_sent) {
    {
      const std::lock_guard lock(mutex_);
      if (open_) {
        outgoing_ = std::move(message);
        on_sent_ = std::move(on_sent);
        return StartWrite(&outgoing_);
      }
    }
    if (on_sent) on_sent(false);
  }

  void send_last(grpc::ByteBuffer message) {
    const std::lock_guard lock(mutex_);
    if (!open_) return;
    outgoing_ = std::move(message);
    StartWriteLast(&outgoing_, {});
  }

  void done() {
    const std::lock_guard lock(mutex_);
    if (open_) StartWritesDone();
  }

  bool next() {  // false: nothing is read any more
    const std::lock_guard lock(mutex_);
    if (!open_) return false;
    if (!std::exchange(reading_, true)) StartRead(&incoming_);
    return true;
  }

  void cancel() {
    context_.TryCancel();
    next();
  }

 private:
  // The first member, so the last to go: the context and what callbacks hold are gone by then.
  struct Place {
    Shared& shared;
    ~Place() { shared.count(-1); }
  };

  void OnReadInitialMetadataDone(bool ok) override { has_headers_ = ok; }

  void OnWriteDone(bool ok) override {
    std::function<void(bool)> told;
    {
      const std::lock_guard lock(mutex_);
      told.swap(on_sent_);
    }
    if (told) told(ok);
  }

  void OnReadDone(bool ok) override {
    grpc::ByteBuffer message;
    {
      const std::lock_guard lock(mutex_);
      // Taken before another read may start: cancel() starts one from any thread, into the same
      // place.
      if (ok) message.Swap(&incoming_);
      reading_ = false;
      open_ = open_ && ok;
    }
    if (!ok) return RemoveHold();
    if (on_message) return on_message(std::move(message));
    answer_ = std::move(message);
    next();  // finds the end
  }

  void OnDone(const grpc::Status& status) override {
    Headers metadata;
    const auto add = [&](const std::multimap<grpc::string_ref, grpc::string_ref>& list) {
      for (const auto& [name, value] : list) {
        metadata.emplace_back(std::string(name.data(), name.size()),
                              std::string(value.data(), value.size()));
      }
    };
    if (has_headers_) add(context_.GetServerInitialMetadata());
    add(context_.GetServerTrailingMetadata());
    on_end(status, std::move(answer_), std::move(metadata));
    on_end = nullptr;  // what the callbacks hold may hold this call
    on_message = nullptr;
    const auto last = std::move(self_);
  }

  const Place place_;
  grpc::ClientContext context_;
  std::shared_ptr<Call> self_;
  grpc::ByteBuffer incoming_, answer_;
  bool has_headers_ = false;
  std::mutex mutex_;
  bool open_ = true;     // guarded by mutex_, as all below: reads and writes may be started
  bool reading_ = true;  // a read is on the way; open() starts the first
  grpc::ByteBuffer outgoing_;
  std::function<void(bool)> on_sent_;
};

// The user's end of a server stream. While a read is on the way the call's on_message keeps it.
class Upstream::Reader final : public ServerStream, public std::enable_shared_from_this<Reader> {
 public:
  explicit Reader(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~Reader() override { call_->cancel(); }

  void next() override {
    {
      const std::lock_guard lock(mutex_);
      kept_ = shared_from_this();
    }
    if (!call_->next()) take();
  }
  void cancel() override { call_->cancel(); }
  std::shared_ptr<Reader> take() {
    const std::lock_guard lock(mutex_);
    return std::move(kept_);
  }
  void keep(std::shared_ptr<Reader> self) { kept_ = std::move(self); }

 private:
  const std::shared_ptr<Call> call_;
  std::mutex mutex_;
  std::shared_ptr<Reader> kept_;  // guarded by mutex_; itself, while a read is on the way
};

class Upstream::Writer final : public ClientStream {
 public:
  // done: its only message is sent, so letting go of it cancels nothing.
  explicit Writer(std::shared_ptr<Call> call, bool done = false)
      : call_(std::move(call)), done_(done) {}
  ~Writer() override {
    if (!done_) call_->cancel();
  }
  void send(grpc::ByteBuffer message, std::function<void(bool ok)> on_sent) override {
    call_->send(std::move(message), std::move(on_sent));
  }
  void done() override {
    done_ = true;
    call_->done();
  }
  void cancel() override { call_->cancel(); }

 private:
  const std::shared_ptr<Call> call_;
  std::atomic<bool> done_;
};

Upstream::Upstream(std::shared_ptr<grpc::Channel> channel) : shared_(std::make_unique<Shared>()) {
  shared_->channel = std::move(channel);
}

Upstream::~Upstream() {
  std::unique_lock lock(shared_->mutex);
  shared_->idle.wait(lock, [this] { return shared_->calls == 0; });
}

std::shared_ptr<Upstream::Call> Upstream::open(const ExchangePtr& exchange, const std::string& path,
                                               const CallOptions& options) {
  const Request& request = exchange->request();
  auto call = std::make_shared<Call>(*shared_);
  grpc::ClientContext& context = call->context();
  context.AddMetadata(rpc::kRequestIdHeader, request.request_id);
  for (const char* name : {"authorization", "traceparent", "tracestate"}) {
    const auto value = request.header(name);
    if (value && is_metadata(*value)) context.AddMetadata(name, *value);
  }
  for (const auto& [name, value] : options.metadata) {
    if (is_metadata(value)) context.AddMetadata(name, value);
  }
  if (options.timeout.count() > 0) rpc::set_timeout(context, options.timeout);
  exchange->on_gone([weak = std::weak_ptr<Call>(call)] {
    if (const auto live = weak.lock()) live->cancel();
  });
  return call;
}

std::shared_ptr<ClientStream> Upstream::unary(const ExchangePtr& exchange, const std::string& path,
                                              grpc::ByteBuffer request, const CallOptions& options,
                                              OnAnswer on_answer) {
  const auto call = open(exchange, path, options);
  call->on_end = [on_answer = std::move(on_answer)](grpc::Status status, grpc::ByteBuffer message,
                                                    Headers metadata) {
    on_answer({std::move(status), std::move(message), std::move(metadata)});
  };
  call->open(path);
  call->send_last(std::move(request));
  return std::make_shared<Writer>(call, /*done=*/true);
}

void Upstream::server_stream(const ExchangePtr& exchange, const std::string& path,
                             grpc::ByteBuffer request, const CallOptions& options,
                             OnStream handlers) {
  const auto call = open(exchange, path, options);
  const auto reader = std::make_shared<Reader>(call);
  reader->keep(reader);
  const std::weak_ptr<Reader> weak = reader;
  call->on_message = [weak, call = call.get(),
                      on_message = std::move(handlers.on_message)](grpc::ByteBuffer message) {
    const auto known = weak.lock();
    const auto handle = known ? known->take() : nullptr;
    if (handle) return on_message(handle, std::move(message));
    call->next();  // it was cancelled: what still comes is read to the end
  };
  call->on_end = [weak, on_end = std::move(handlers.on_end)](grpc::Status status, grpc::ByteBuffer,
                                                             Headers metadata) {
    if (const auto known = weak.lock()) known->take();
    on_end(std::move(status), std::move(metadata));
  };
  call->open(path);
  call->send_last(std::move(request));
}

std::shared_ptr<ClientStream> Upstream::client_stream(const ExchangePtr& exchange,
                                                      const std::string& path,
                                                      const CallOptions& options,
                                                      OnAnswer on_answer) {
  auto call = open(exchange, path, options);
  call->on_end = [on_answer = std::move(on_answer)](grpc::Status status, grpc::ByteBuffer message,
                                                    Headers metadata) {
    on_answer({std::move(status), std::move(message), std::move(metadata)});
  };
  call->open(path);
  return std::make_shared<Writer>(std::move(call));
}

}  // namespace dex::gateway::http
