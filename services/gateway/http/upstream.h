#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// How a call ended: its status, its message (only when OK) and the server's metadata, leading and
// trailing ones together ({"dex-replayed", "true"}).
template <typename M>
struct Answer {
  grpc::Status status;
  M message;
  Headers metadata;
};

struct CallOptions {
  std::chrono::milliseconds timeout{60'000};  // 0: none, for watches and uploads
  Headers metadata;                           // more than what is carried over anyway
};

// A call on its way, for who wants to steer it. Thread-safe; all functions return at once.
// Callbacks of one call come one after another, on gRPC's threads. When the last handle is let go,
// without a next() on the way or before done(), the call is cancelled: nobody would read or end it.
class ServerStream {
 public:
  virtual ~ServerStream() = default;
  virtual void next() = 0;    // asks for one more message: when the last one has been written
  virtual void cancel() = 0;  // on_end follows with CANCELLED
};
class ClientStream {
 public:
  virtual ~ClientStream() = default;
  // One at a time: the next when on_sent(true) has come. false: the call has ended, its answer is
  // on the way.
  virtual void send(grpc::ByteBuffer message, std::function<void(bool ok)> on_sent) = 0;
  virtual void done() = 0;  // nothing more is sent; not while a send is on the way
  virtual void cancel() = 0;
};

// Calls of HTTP requests to the gateway's own gRPC front, over an in-process channel: so one code
// authenticates, routes, limits and counts both doors. All asynchronous: no call keeps a thread.
//
// Each call carries the request's authorization, x-request-id, traceparent, tracestate and a
// deadline; it is cancelled when the exchange's client goes away. Paths: "/dex.v1.X/Y".
// Thread-safe.
class Upstream {
 public:
  explicit Upstream(std::shared_ptr<grpc::Channel> channel);
  // Waits until every call has ended and its handles are let go: the server that answers them must
  // have stopped, or their clients be gone.
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  // In bytes. What unary() and call() return is for cancel() alone; letting go of it cancels
  // nothing.
  using OnAnswer = std::function<void(Answer<grpc::ByteBuffer>)>;
  std::shared_ptr<ClientStream> unary(const ExchangePtr& exchange, const std::string& path,
                                      grpc::ByteBuffer request, const CallOptions& options,
                                      OnAnswer on_answer);
  // The first message is asked for at once, each further one by stream->next(), from on_message or
  // later.
  using StreamPtr = std::shared_ptr<ServerStream>;
  struct OnStream {
    std::function<void(const StreamPtr& stream, grpc::ByteBuffer)> on_message;
    std::function<void(grpc::Status, Headers metadata)> on_end;  // once, the last
  };
  void server_stream(const ExchangePtr& exchange, const std::string& path, grpc::ByteBuffer request,
                     const CallOptions& options, OnStream handlers);
  std::shared_ptr<ClientStream> client_stream(const ExchangePtr& exchange, const std::string& path,
                                              const CallOptions& options, OnAnswer on_answer);

  // The same with generated messages. A reply that is no `R` is INTERNAL.
  //   upstream.call<v1::File>(exchange, "/dex.v1.FileService/GetFile", request,
  //       [exchange](Answer<v1::File> answer) {
  //         if (!answer.status.ok()) return refuse(*exchange, answer.status);
  //         exchange->reply(json_reply(openai_file(answer.message)));
  //       });
  template <typename R>
  std::shared_ptr<ClientStream> call(const ExchangePtr& exchange, const std::string& path,
                                     const google::protobuf::Message& request,
                                     std::function<void(Answer<R>)> on_answer,
                                     const CallOptions& options = {});
  template <typename R>
  void watch(const ExchangePtr& exchange, const std::string& path,
             const google::protobuf::Message& request,
             std::function<void(const StreamPtr& stream, R)> on_message,
             std::function<void(grpc::Status, Headers)> on_end, const CallOptions& options);

 private:
  struct Shared;
  class Call;
  class Reader;
  class Writer;
  std::shared_ptr<Call> open(const ExchangePtr& exchange, const std::string& path,
                             const CallOptions& options);

  const std::unique_ptr<Shared> shared_;
};

// Puts the header Idempotency-Key into the message's `request_id`, in the one of `header` for
// uploads; does nothing to messages without such a field. INVALID_ARGUMENT: `CONFLICTING_FIELDS` if
// the message names another one, `INVALID_FIELD` if the key is not 1–64 printable characters. Call
// it for every mutating request.
base::Status take_idempotency_key(const Request& request, google::protobuf::Message& message);

grpc::ByteBuffer to_bytes(const google::protobuf::Message& message);
bool from_bytes(grpc::ByteBuffer bytes, google::protobuf::Message& message);
grpc::Status bad_reply(const std::string& type);  // INTERNAL: the bytes are no such message

template <typename R>
std::shared_ptr<ClientStream> Upstream::call(const ExchangePtr& exchange, const std::string& path,
                                             const google::protobuf::Message& request,
                                             std::function<void(Answer<R>)> on_answer,
                                             const CallOptions& options) {
  return unary(exchange, path, to_bytes(request), options,
               [on_answer = std::move(on_answer)](Answer<grpc::ByteBuffer> bytes) {
                 Answer<R> answer{std::move(bytes.status), {}, std::move(bytes.metadata)};
                 if (answer.status.ok() && !from_bytes(std::move(bytes.message), answer.message)) {
                   answer.status = bad_reply(R::descriptor()->full_name());
                 }
                 on_answer(std::move(answer));
               });
}

template <typename R>
void Upstream::watch(const ExchangePtr& exchange, const std::string& path,
                     const google::protobuf::Message& request,
                     std::function<void(const StreamPtr& stream, R)> on_message,
                     std::function<void(grpc::Status, Headers)> on_end,
                     const CallOptions& options) {
  auto bad = std::make_shared<bool>(false);  // callbacks come one after another
  server_stream(
      exchange, path, to_bytes(request), options,
      {[on_message = std::move(on_message), bad](const StreamPtr& stream, grpc::ByteBuffer bytes) {
         R message;
         *bad = !from_bytes(std::move(bytes), message);
         if (*bad) return stream->cancel();
         on_message(stream, std::move(message));
       },
       [on_end = std::move(on_end), bad](grpc::Status status, Headers metadata) {
         on_end(*bad ? bad_reply(R::descriptor()->full_name()) : status, std::move(metadata));
       }});
}

}  // namespace dex::gateway::http
