#include "services/gateway/openai/model_calls.h"

#include "services/rpc/status.h"

namespace dex::gateway::openai {

using http::ExchangePtr;

grpc::Status as_model(const grpc::Status& status, const std::string& name) {
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return status;
  return rpc::to_grpc(
      base::not_found("MODEL_NOT_FOUND", "there is no model, adapter or alias '" +
                                             name.substr(0, 255) + "'; GET /v1/models lists them")
          .with_metadata("resource_type", "model")
          .with_metadata("resource_name", name.substr(0, 255))
          .with_metadata("param", "model"),
      "");
}

void get_adapter(const DoorPtr& door, const ExchangePtr& exchange, const std::string& id,
                 std::function<void(const v1::Adapter&)> then) {
  v1::GetAdapterRequest request;
  request.set_id(id);
  answer_model<v1::Adapter>(*door, exchange, kAdapters + "GetAdapter", request, id,
                            std::move(then));
}

void delete_alias(const DoorPtr& door, const ExchangePtr& exchange, const std::string& name,
                  std::function<void(const v1::AdapterAlias&)> then) {
  v1::DeleteAdapterAliasRequest request;
  request.set_alias(name);
  if (!identify(*door, exchange, exchange->request().body, request)) return;
  answer_model<v1::AdapterAlias>(*door, exchange, kAdapters + "DeleteAdapterAlias", request, name,
                                 std::move(then));
}

}  // namespace dex::gateway::openai
