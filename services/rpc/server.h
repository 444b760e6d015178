#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/monitor/registry.h"
#include "services/rpc/limits.h"
#include "services/rpc/room.h"

namespace dex::rpc {

// A listening gRPC server with the limits of jobs.md §9, the standard health service (one name a
// service, and "" for the whole), reflection, and dex_rpc_duration_seconds{method,code}.
//
//   DEX_ASSIGN_OR_RETURN(auto server, rpc::Server::start({.address = "127.0.0.1:0",
//       .services = {{v1::FileService::service_full_name(), &files}}}, room, metrics));
class Server {
 public:
  struct Service {
    std::string name;        // "dex.v1.FileService": its name in the health service
    grpc::Service* service;  // outlives the server; null: only a health name (forwarded services)
  };
  struct Options {
    std::string address = "127.0.0.1:0";  // port 0 = any free one; or unix:/path
    std::vector<Service> services;
    grpc::CallbackGenericService* generic = nullptr;  // takes the calls of no registered service
    // The limits for strangers: fewer streams a connection, less metadata, and old connections
    // close gracefully, so that clients spread over new replicas. Else those between our processes.
    bool is_public = false;
  };

  // Listens when it returns, all services SERVING. Fails when the address can't be bound or is
  // taken (also by a server with SO_REUSEPORT). `room` and `metrics` outlive the server.
  static base::Result<std::unique_ptr<Server>> start(const Options& options, Room& room,
                                                     monitor::Registry& metrics);
  ~Server();  // as stop(), with half a second

  [[nodiscard]] const std::string& address() const { return address_; }  // with the real port
  [[nodiscard]] int port() const { return port_; }                       // 0 for a Unix socket

  // What the health service says of a service; "" sets all of them.
  void set_serving(const std::string& service, bool serving);

  // Stops in order: health NOT_SERVING, no new calls, unary calls end, streams end with
  // `SERVER_DRAINING`, and what is left after `grace` is cut. Blocks at most about `grace`; may be
  // called again.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(10));

 private:
  Server(Room& room, std::vector<std::string> names) : room_(room), names_(std::move(names)) {}

  Room& room_;
  const std::vector<std::string> names_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace dex::rpc
