#include "services/gateway/proxy/front.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include "services/gateway/proxy/forward_call.h"
#include "services/gateway/proxy/public_services.h"
#include "services/rpc/live_call.h"

namespace dex::gateway {

namespace {

using grpc::ByteBuffer;

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

}  // namespace

// A service of the .proto files whose methods all take and give bytes, but for the one that the
// gateway reads itself. What protoc generates for callback methods, made from the descriptor.
class Front::NamedService final : public grpc::Service {
 public:
  NamedService(Front& front, const std::string& name) : name_(name) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string& path = paths_.emplace_back("/" + name + "/" + service->method(i)->name());
      if (path == HealthAnswer::kPath) {
        add_health(front, i, path);
        continue;
      }
      AddMethod(new grpc::internal::RpcServiceMethod(
          path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
      MarkMethodRawCallback(i, new grpc::internal::CallbackBidiHandler<ByteBuffer, ByteBuffer>(
                                   [&front, &path](grpc::CallbackServerContext* context) {
                                     return front.open(*context, path);
                                   }));
    }
  }

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  void add_health(Front& front, int index, const std::string& path) {
    AddMethod(new grpc::internal::RpcServiceMethod(path.c_str(),
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodCallback(
        index, new grpc::internal::CallbackUnaryHandler<v1::GetHealthRequest, v1::Health>(
                   [&front](grpc::CallbackServerContext* context, const v1::GetHealthRequest* in,
                            v1::Health* out) { return front.health_.open(context, in, out); }));
  }

  const std::string name_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

Front::Front(const Parts& parts)
    : parts_(parts),
      health_({parts.room, parts.scheduler, parts.inference.routes, parts.metrics, parts.admission,
               parts.version, parts.commit}) {
  for (const auto& name : public_services()) {
    services_.push_back(std::make_unique<NamedService>(*this, name));
  }
}

Front::~Front() = default;

std::vector<rpc::Server::Service> Front::services() {
  std::vector<rpc::Server::Service> list;
  for (const auto& service : services_) list.push_back({service->name(), service.get()});
  return list;
}

grpc::ServerGenericBidiReactor* Front::CreateReactor(grpc::GenericCallbackServerContext* context) {
  return open(*context, context->method());
}

grpc::ServerGenericBidiReactor* Front::open(grpc::CallbackServerContext& context,
                                            const std::string& path) {
  const std::string_view service = service_of(path);
  auto principal = parts_.admission.admit(context, service);
  if (!principal.ok()) return refuse(context, principal.status());
  const bool generates = service == kInferenceService;
  // A method that no worker knows can't be routed: its message says nothing to us.
  if (!is_public(service) || (generates && !is_known(path))) {
    return refuse(context, {base::Code::kUnimplemented, "NOT_SUPPORTED",
                            "this server has no method '" + path + "'"});
  }
  if (generates) {
    auto call = std::make_shared<InferenceCall>(parts_.room, context, std::move(principal).value(),
                                                path, !is_unary(path), parts_.inference);
    call->open();
    return call.get();
  }
  auto call = std::make_shared<ForwardCall>(parts_.room, context, std::move(principal).value(),
                                            path, is_unary(path), parts_.metrics, parts_.audit);
  call->open(parts_.scheduler);
  return call.get();
}

grpc::ServerGenericBidiReactor* Front::refuse(grpc::CallbackServerContext& context,
                                              const base::Status& why) {
  parts_.metrics.rejected(why.reason());
  return new Refusal(rpc::refusal(context, why));
}

}  // namespace dex::gateway
