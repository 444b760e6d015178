#include "services/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <mutex>

#include "services/rpc/call_log.h"
#include "services/rpc/metrics_interceptor.h"

namespace dex::rpc {

namespace {

constexpr size_t kBufferedBytes = 512U << 20;  // all connections of a server together
constexpr int kHourMs = 3'600'000;

// Health and reflection are switches of the gRPC library, read by every server built afterwards.
void enable_standard_services() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

void set_limits(grpc::ServerBuilder& builder, const Server::Options& options) {
  builder.SetMaxReceiveMessageSize(kLargestMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                             options.is_public ? kLargestMetadataBytes : kInternalMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.is_public ? kPublicStreams : kInternalStreams);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kShortestPingMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  if (options.is_public) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kHourMs);  // its grace is unlimited
  }
  grpc::ResourceQuota quota("dex");
  quota.Resize(kBufferedBytes);
  builder.SetResourceQuota(quota);
}

}  // namespace

base::Result<std::unique_ptr<Server>> Server::start(const Options& options, Room& room,
                                                    monitor::Registry& metrics) {
  enable_standard_services();
  grpc::ServerBuilder builder;
  set_limits(builder, options);
  std::vector<std::string> names;
  for (const Service& service : options.services) {
    names.push_back(service.name);
    if (service.service != nullptr) builder.RegisterService(service.service);
  }
  if (options.generic != nullptr) builder.RegisterCallbackGenericService(options.generic);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<MetricsInterceptorFactory>(metrics));
  interceptors.push_back(std::make_unique<CallLogFactory>());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  int port = 0;
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port);

  std::unique_ptr<Server> server(new Server(room, std::move(names)));
  server->server_ = builder.BuildAndStart();
  if (!server->server_) {
    return base::unavailable("INTERNAL", "cannot listen on '" + options.address +
                                             "': the port is taken or the address is not one of "
                                             "this machine's");
  }
  const bool is_unix = options.address.starts_with("unix:");
  server->port_ = is_unix ? 0 : port;
  server->address_ =
      is_unix ? options.address
              : options.address.substr(0, options.address.rfind(':') + 1) + std::to_string(port);
  server->set_serving("", true);
  return server;
}

Server::~Server() {
  stop(std::chrono::milliseconds(500));
}

void Server::set_serving(const std::string& service, bool serving) {
  auto* health = server_->GetHealthCheckService();
  if (!service.empty()) return health->SetServingStatus(service, serving);
  health->SetServingStatus("", serving);
  for (const auto& name : names_) health->SetServingStatus(name, serving);
}

void Server::stop(std::chrono::milliseconds grace) {
  if (!server_) return;
  set_serving("", false);
  room_.drain();
  // What is left shortly before the end learns why; Shutdown's own cut says nothing.
  const auto cut = room_.timer().at(std::chrono::steady_clock::now() + grace * 9 / 10,
                                    [&room = room_] { room.cut(); });
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
  room_.timer().cancel(cut);
  server_.reset();
}

}  // namespace dex::rpc
