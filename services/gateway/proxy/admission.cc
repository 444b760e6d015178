#include "services/gateway/proxy/admission.h"

#include "services/gateway/proxy/public_services.h"

namespace dex::gateway {

base::Result<auth::Principal> Admission::admit(const grpc::CallbackServerContext& context,
                                               std::string_view service) {
  DEX_ASSIGN_OR_RETURN(auto caller, parts_.room.admit(context, nullptr));
  parts_.uses.note_key(caller.key());
  DEX_RETURN_IF_ERROR(parts_.limiter.take(caller.tenant()));
  if (service == kInferenceService) DEX_RETURN_IF_ERROR(auth::require(caller, auth::Scope::kInfer));
  return caller;
}

}  // namespace dex::gateway
