#include "services/gateway/http/form_upload.h"

#include <google/protobuf/message.h>

#include <memory>
#include <utility>

#include "services/gateway/http/http_error.h"
#include "services/gateway/http/json_message.h"
#include "services/gateway/http/multipart.h"
#include "services/gateway/http/rpc_bridge.h"

namespace dex::gateway::http {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

constexpr size_t kLongestHeader = 64 << 10;

// The two fields of a request that is uploaded in pieces; null: it has another shape.
struct UploadShape {
  const FieldDescriptor* header = nullptr;
  const FieldDescriptor* chunk = nullptr;
};

UploadShape shape_of(const Descriptor& request) {
  const auto* header = request.FindFieldByName("header");
  const auto* chunk = request.FindFieldByName("chunk");
  const bool fits = header != nullptr && header->message_type() != nullptr &&
                    !header->is_repeated() && chunk != nullptr && !chunk->is_repeated() &&
                    chunk->type() == FieldDescriptor::TYPE_BYTES;
  return fits ? UploadShape{header, chunk} : UploadShape{};
}

base::Status bad_parts(const std::string& what) {
  return base::bad_field("MISSING_FIELD", "body",
                         "must have the parts `header` (JSON) and then `file`; " + what);
}

// One upload on its way: part by part from the client, message by message to the service.
class FormUpload : public std::enable_shared_from_this<FormUpload> {
 public:
  FormUpload(ExchangePtr exchange, Upstream& upstream, const MethodDescriptor& method)
      : exchange_(std::move(exchange)),
        upstream_(upstream),
        method_(method),
        shape_(shape_of(*method.input_type())) {}

  void start() {
    auto reader = MultipartReader::open(exchange_);
    if (!reader.ok()) return refuse(*exchange_, reader.status());
    reader_ = std::move(reader).value();
    reader_->next([self = shared_from_this()](base::Result<MultipartEvent> event) {
      if (!event.ok()) return refuse(*self->exchange_, event.status());
      if (event->kind != MultipartEvent::Kind::kPart || event->part.name != "header") {
        return refuse(*self->exchange_, bad_parts("the first one is not `header`"));
      }
      self->reader_->read_part(kLongestHeader, [self](base::Result<std::string> value) {
        value.ok() ? self->open_call(*value) : refuse(*self->exchange_, value.status());
      });
    });
  }

 private:
  void open_call(const std::string& header) {
    const auto message = new_request();
    auto& inner = *message->GetReflection()->MutableMessage(message.get(), shape_.header);
    base::Status fault = from_json(header, inner);
    if (fault.ok()) fault = take_idempotency_key(exchange_->request(), *message);
    if (!fault.ok()) return refuse(*exchange_, fault);
    CallOptions options;
    options.timeout = std::chrono::milliseconds(0);
    const std::string path = "/" + method_.service()->full_name() + "/" + method_.name();
    call_ = upstream_.client_stream(
        exchange_, path, options,
        [exchange = exchange_, type = method_.output_type()](Answer<grpc::ByteBuffer> answer) {
          reply_message(*exchange, std::move(answer), type);
        });
    send(*message);
  }

  void send(const Message& message) {
    call_->send(to_bytes(message), [self = shared_from_this()](bool ok) {
      if (ok) self->next_part();  // not ok: the call has ended and its answer replies
    });
  }

  void next_part() {
    reader_->next([self = shared_from_this()](base::Result<MultipartEvent> event) {
      event.ok() ? self->take(std::move(event).value()) : self->give_up(event.status());
    });
  }

  void take(MultipartEvent event) {
    using Kind = MultipartEvent::Kind;
    if (event.kind == Kind::kData && in_file_) {
      const auto message = new_request();
      message->GetReflection()->SetString(message.get(), shape_.chunk, std::move(event.data));
      return send(*message);
    }
    if (event.kind == Kind::kPart) {
      if (event.part.name != "file" || had_file_) {
        return give_up(bad_parts("there is another one, '" + event.part.name.substr(0, 64) + "'"));
      }
      in_file_ = had_file_ = true;
    }
    if (event.kind == Kind::kPartEnd) in_file_ = false;
    if (event.kind != Kind::kEnd) return next_part();
    if (!had_file_) return give_up(bad_parts("`file` is not there"));
    call_->done();
  }

  // The form is at fault, not the service: its word goes out first, then the call is ended.
  void give_up(const base::Status& why) {
    refuse(*exchange_, why);
    call_->cancel();
  }

  [[nodiscard]] std::unique_ptr<Message> new_request() const {
    return std::unique_ptr<Message>(
        MessageFactory::generated_factory()->GetPrototype(method_.input_type())->New());
  }

  const ExchangePtr exchange_;
  Upstream& upstream_;
  const MethodDescriptor& method_;
  const UploadShape shape_;
  std::shared_ptr<MultipartReader> reader_;
  std::shared_ptr<ClientStream> call_;
  bool in_file_ = false;
  bool had_file_ = false;
};

}  // namespace

void add_form_upload(Router& router, const std::string& pattern, Upstream& upstream,
                     const MethodDescriptor& method) {
  if (shape_of(*method.input_type()).header == nullptr || method.server_streaming()) {
    router.add("POST", pattern, [name = method.full_name()](const ExchangePtr& exchange) {
      refuse(*exchange, base::Status(base::Code::kUnimplemented, "NOT_SUPPORTED",
                                     name + " streams in a way that HTTP can't; use gRPC"));
    });
    return;
  }
  RouteOptions options;
  options.body = Body::kStream;
  options.body_bytes = kUploadBytes;
  router.add(
      "POST", pattern,
      [&upstream, &method](const ExchangePtr& exchange) {
        std::make_shared<FormUpload>(exchange, upstream, method)->start();
      },
      options);
}

void reply_message(Exchange& exchange, Answer<grpc::ByteBuffer> answer, const Descriptor* type) {
  const std::unique_ptr<Message> message(
      MessageFactory::generated_factory()->GetPrototype(type)->New());
  if (answer.status.ok() && !from_bytes(std::move(answer.message), *message)) {
    answer.status = bad_reply(type->full_name());
  }
  Reply reply;
  if (answer.status.ok()) {
    reply.body = to_json(*message);
  } else {
    reply = error_reply(answer.status, exchange.request().request_id);
  }
  for (auto& header : reply_headers(answer.metadata)) reply.headers.push_back(std::move(header));
  exchange.reply(std::move(reply));
}

}  // namespace dex::gateway::http
