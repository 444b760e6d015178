#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/proxy/admission.h"
#include "services/gateway/proxy/audit_log.h"
#include "services/gateway/proxy/health_answer.h"
#include "services/gateway/proxy/inference_call.h"
#include "services/rpc/room.h"
#include "services/rpc/server.h"

namespace dex::gateway {

// The gRPC face of the gateway: every public method of dex.v1. InferenceService goes to workers,
// all other services to the scheduler, also methods of theirs that only the scheduler knows; to
// GetHealth the gateway adds what it sees.
// Everything else is UNIMPLEMENTED `NOT_SUPPORTED`, dex.internal.v1 too.
//
// Known services are registered under their names, so that reflection lists them; their handlers,
// like the generic service's, see bytes only, but for GetHealth's. Outlives the server.
class Front final : public grpc::CallbackGenericService {
 public:
  struct Parts {  // all outlive this object
    rpc::Room& room;
    std::shared_ptr<grpc::Channel> scheduler;
    Admission& admission;
    InferenceCall::Parts inference;
    Metrics& metrics;
    AuditLog* audit;              // null: none is kept
    std::string version, commit;  // of this gateway
  };
  explicit Front(const Parts& parts);
  ~Front() override;

  // For rpc::Server::Options.
  [[nodiscard]] std::vector<rpc::Server::Service> services();

  // The reactor that answers one call; path = "/dex.v1.FileService/GetFile".
  grpc::ServerGenericBidiReactor* open(grpc::CallbackServerContext& context,
                                       const std::string& path);
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  class NamedService;
  grpc::ServerGenericBidiReactor* refuse(grpc::CallbackServerContext& context,
                                         const base::Status& why);

  const Parts parts_;
  HealthAnswer health_;
  std::vector<std::unique_ptr<NamedService>> services_;
};

}  // namespace dex::gateway
