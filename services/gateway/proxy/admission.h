#pragma once

#include <grpcpp/server_context.h>

#include <string_view>

#include "services/auth/principal.h"
#include "services/auth/rate_limiter.h"
#include "services/base/status.h"
#include "services/gateway/routing/use_report.h"
#include "services/rpc/room.h"

namespace dex::gateway {

// Whether a call may pass the gateway at all: it is not draining, the caller is known, has requests
// left in this minute and, for generations, the scope `infer`, since no one behind asks for that
// one. All other scopes are the scheduler's to ask for. Thread-safe, never blocks.
class Admission {
 public:
  struct Parts {  // all outlive this object
    rpc::Room& room;
    auth::RateLimiter& limiter;
    UseReport& uses;
  };
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // `service`: full name, "dex.v1.FileService". Errors: Room::admit's, RATE_LIMITED, SCOPE_MISSING.
  base::Result<auth::Principal> admit(const grpc::CallbackServerContext& context,
                                      std::string_view service);

 private:
  const Parts parts_;
};

}  // namespace dex::gateway
