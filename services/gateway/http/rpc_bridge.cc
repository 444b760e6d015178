#include "services/gateway/http/rpc_bridge.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "services/gateway/http/form_upload.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/http/json_message.h"
#include "services/gateway/http/sse.h"
#include "services/gateway/proxy/public_services.h"

namespace dex::gateway::http {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

// A stream in which nothing happens is answered after this time, so that the client sees that it is
// open; until then an error can still be an HTTP status.
constexpr std::chrono::milliseconds kSilence{1000};

std::unique_ptr<Message> made(const Descriptor* type) {
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(type)->New());
}

// An answer of events that begins with the first message, after a while, or with the end. Callbacks
// of the call and the timer come on different threads.
class EventAnswer {
 public:
  explicit EventAnswer(ExchangePtr exchange) : exchange_(std::move(exchange)) {}

  void begin() {
    const std::lock_guard lock(mutex_);
    begin_locked();
  }
  void send(const std::string& data, Exchange::OnWritten on_written) {
    const std::lock_guard lock(mutex_);
    begin_locked();
    if (stream_) stream_->send({data, "", ""}, std::move(on_written));
  }
  void end(const grpc::Status& status) {  // the first one counts
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!stream_ && !status.ok()) {
      refuse(*exchange_, status);
    } else {
      begin_locked();
      status.ok() ? stream_->end() : stream_->fail(status);
    }
    ended_ = true;
  }

 private:
  void begin_locked() {
    if (!stream_ && !ended_) stream_.emplace(exchange_);
  }

  const ExchangePtr exchange_;
  std::mutex mutex_;
  std::optional<SseStream> stream_;  // guarded by mutex_
  bool ended_ = false;               // guarded by mutex_
};

void answer_unary(const ExchangePtr& exchange, Upstream& upstream, const std::string& path,
                  const Message& request, const Descriptor* output) {
  CallOptions options;
  options.timeout = timeout_of(path, /*streaming=*/false);
  upstream.unary(exchange, path, to_bytes(request), options,
                 [exchange, output](Answer<grpc::ByteBuffer> answer) {
                   reply_message(*exchange, std::move(answer), output);
                 });
}

void answer_stream(const ExchangePtr& exchange, Upstream& upstream, const std::string& path,
                   const Message& request, const Descriptor* output) {
  const auto events = std::make_shared<EventAnswer>(exchange);
  exchange->after(kSilence, [weak = std::weak_ptr<EventAnswer>(events)] {
    if (const auto live = weak.lock()) live->begin();
  });
  CallOptions options;
  options.timeout = timeout_of(path, /*streaming=*/true);
  Upstream::OnStream handlers;
  handlers.on_message = [events, output](const Upstream::StreamPtr& stream,
                                         grpc::ByteBuffer bytes) {
    const auto message = made(output);
    if (!from_bytes(std::move(bytes), *message)) {
      events->end(bad_reply(output->full_name()));
      return stream->cancel();
    }
    // The next message is asked for when this one is on its way: a slow reader slows its source.
    events->send(to_json(*message),
                 [stream](bool written) { written ? stream->next() : stream->cancel(); });
  };
  handlers.on_end = [events](const grpc::Status& status, const Headers&) { events->end(status); };
  upstream.server_stream(exchange, path, to_bytes(request), options, std::move(handlers));
}

void answer_call(const ExchangePtr& exchange, Upstream& upstream, const MethodDescriptor& method,
                 const std::string& path) {
  const Request& request = exchange->request();
  const auto message = made(method.input_type());
  base::Status fault;
  const std::string type = request.header("content-type").value_or("application/json");
  if (!type.starts_with("application/json")) {
    fault = base::invalid_field(
        "content-type", path + " takes application/json, got '" + type.substr(0, 100) + "'");
  }
  if (fault.ok()) fault = from_json(request.body, *message);
  if (fault.ok()) fault = take_idempotency_key(request, *message);
  if (!fault.ok()) return refuse(*exchange, fault);
  const auto answer = method.server_streaming() ? answer_stream : answer_unary;
  answer(exchange, upstream, path, *message, method.output_type());
}

}  // namespace

std::chrono::milliseconds timeout_of(std::string_view path, bool streaming) {
  using std::chrono::minutes;
  if (streaming && !path.starts_with("/dex.v1.InferenceService/")) return minutes(0);
  constexpr std::string_view kLong[] = {"/dex.v1.AdapterService/LoadAdapter",
                                        "/dex.v1.AdapterService/ExportAdapter",
                                        "/dex.v1.FineTuningService/PreviewHeadSelection"};
  if (path.starts_with("/dex.v1.InferenceService/")) return minutes(10);
  if (std::find(std::begin(kLong), std::end(kLong), path) != std::end(kLong)) return minutes(10);
  if (path == "/dex.v1.FineTuningService/EstimateFineTuningJob") return minutes(5);
  return minutes(1);
}

Headers reply_headers(const Headers& metadata) {
  Headers headers;
  for (const auto& [name, value] : metadata) {
    if (name.starts_with("dex-")) headers.emplace_back(name, value);
  }
  return headers;
}

void add_rpc_bridge(Router& router, Upstream& upstream) {
  for (const std::string& name : public_services()) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) {
      const MethodDescriptor* method = service->method(i);
      const std::string path = "/" + name + "/" + method->name();
      if (method->client_streaming()) {
        add_form_upload(router, "/rpc" + path, upstream, *method);
        continue;
      }
      router.add("POST", "/rpc" + path, [&upstream, method, path](const ExchangePtr& exchange) {
        answer_call(exchange, upstream, *method, path);
      });
    }
  }
}

}  // namespace dex::gateway::http
