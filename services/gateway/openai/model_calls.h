#pragma once

#include <functional>
#include <string>
#include <utility>

#include "dex/v1/adapters.pb.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/openai/door.h"

// Calls that several routes make about what OpenAI calls a model: a base, an adapter or an alias.
namespace dex::gateway::openai {

inline const std::string kAdapters = "/dex.v1.AdapterService/";

// What the services call a missing resource is a missing model on these routes.
grpc::Status as_model(const grpc::Status& status, const std::string& name);

// `then` with the reply; a failure is answered, NOT_FOUND as a missing model `name`.
template <typename R>
void answer_model(Door& door, const http::ExchangePtr& exchange, const std::string& path,
                  const google::protobuf::Message& request, const std::string& name,
                  std::function<void(const R&)> then) {
  door.upstream.call<R>(exchange, path, request,
                        [exchange, name, then = std::move(then)](const http::Answer<R>& answer) {
                          if (!answer.status.ok())
                            return http::refuse(*exchange, as_model(answer.status, name));
                          then(answer.message);
                        });
}

// `name`: an id or an alias.
void get_adapter(const DoorPtr& door, const http::ExchangePtr& exchange, const std::string& name,
                 std::function<void(const v1::Adapter&)> then);

// The alias alone; what it points to stays. `then` with it as it was, of a repeat with its name
// alone.
void delete_alias(const DoorPtr& door, const http::ExchangePtr& exchange, const std::string& name,
                  std::function<void(const v1::AdapterAlias&)> then);

}  // namespace dex::gateway::openai
