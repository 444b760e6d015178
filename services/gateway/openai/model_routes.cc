#include <algorithm>

#include "dex/v1/adapters.pb.h"
#include "dex/v1/models.pb.h"
#include "services/gateway/openai/adapter_request.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/lists.h"
#include "services/gateway/openai/model_objects.h"
#include "services/rpc/status.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

const std::string kModels = "/dex.v1.ModelService/";
const std::string kAdapters = "/dex.v1.AdapterService/";
constexpr const char* kOpenAi404 = "MODEL_NOT_FOUND";

// What the services call a missing resource is a missing model on these routes.
grpc::Status as_model(const grpc::Status& status, const std::string& name) {
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return status;
  return rpc::to_grpc(
      base::not_found(kOpenAi404, "there is no model or adapter '" + name.substr(0, 255) +
                                      "'; GET /v1/models lists them")
          .with_metadata("resource_type", "model")
          .with_metadata("resource_name", name.substr(0, 255))
          .with_metadata("param", "model"),
      "");
}

template <typename R>
void answer_model(Door& door, const ExchangePtr& exchange, const std::string& path,
                  const google::protobuf::Message& request, const std::string& name,
                  std::function<void(const R&)> then) {
  door.upstream.call<R>(exchange, path, request,
                        [exchange, name, then = std::move(then)](const http::Answer<R>& answer) {
                          if (!answer.status.ok())
                            return http::refuse(*exchange, as_model(answer.status, name));
                          then(answer.message);
                        });
}

// ---- list: bases first, then adapters, newest first ----

struct ModelList {
  v1::ListModelsResponse bases;
  json data = json::array();

  [[nodiscard]] const v1::Model* find(const std::string& name) const {
    const auto it = std::find_if(bases.models().begin(), bases.models().end(),
                                 [&](const auto& model) { return model.name() == name; });
    return it == bases.models().end() ? nullptr : &*it;
  }
};

void list_adapters(const DoorPtr& door, const ExchangePtr& exchange,
                   const std::shared_ptr<ModelList>& list) {
  v1::ListAdaptersRequest request;
  request.set_page_size(1000);
  each_page<v1::ListAdaptersRequest, v1::ListAdaptersResponse>(
      door, exchange, kAdapters + "ListAdapters", request,
      [list](v1::ListAdaptersResponse& page) {
        for (const auto& adapter : page.adapters())
          list->data.push_back(model_object(adapter, list->find(adapter.base_model())));
        return false;
      },
      [exchange, list] {
        exchange->reply(http::json_reply(list_object(std::move(list->data), false)));
      });
}

void list_models(const DoorPtr& door, const ExchangePtr& exchange) {
  if (!exchange->request().query.empty()) {
    return http::refuse(
        *exchange,
        base::bad_field("UNKNOWN_FIELD", exchange->request().query.front().first.substr(0, 100),
                        "is not known; this list takes no parameters"));
  }
  door->upstream.call<v1::ListModelsResponse>(
      exchange, kModels + "ListModels", v1::ListModelsRequest(),
      [door, exchange](http::Answer<v1::ListModelsResponse> answer) {
        if (!answer.status.ok()) return http::refuse(*exchange, answer.status);
        const auto list = std::make_shared<ModelList>();
        list->bases = std::move(answer.message);
        for (const auto& model : list->bases.models()) list->data.push_back(model_object(model));
        list_adapters(door, exchange, list);
      });
}

// ---- one ----

void get_base(const DoorPtr& door, const ExchangePtr& exchange, const std::string& name,
              std::function<void(const v1::Model&)> then) {
  v1::GetModelRequest request;
  request.set_name(name);
  answer_model<v1::Model>(*door, exchange, kModels + "GetModel", request, name, std::move(then));
}

void get_adapter(const DoorPtr& door, const ExchangePtr& exchange, const std::string& id,
                 std::function<void(const v1::Adapter&)> then) {
  v1::GetAdapterRequest request;
  request.set_id(id);
  answer_model<v1::Adapter>(*door, exchange, kAdapters + "GetAdapter", request, id,
                            std::move(then));
}

// The adapter with its base's context length; a base that is not listed any more does not hide it.
void show_adapter(const DoorPtr& door, const ExchangePtr& exchange, const v1::Adapter& adapter) {
  v1::GetModelRequest request;
  request.set_name(adapter.base_model());
  door->upstream.call<v1::Model>(exchange, kModels + "GetModel", request,
                                 [exchange, adapter](const http::Answer<v1::Model>& base) {
                                   const v1::Model* model =
                                       base.status.ok() ? &base.message : nullptr;
                                   exchange->reply(http::json_reply(model_object(adapter, model)));
                                 });
}

void get_model(const DoorPtr& door, const ExchangePtr& exchange) {
  const std::string& name = exchange->request().parameter("id");
  if (is_adapter_id(name)) {
    return get_adapter(door, exchange, name, [door, exchange](const v1::Adapter& adapter) {
      show_adapter(door, exchange, adapter);
    });
  }
  get_base(door, exchange, name, [exchange](const v1::Model& model) {
    exchange->reply(http::json_reply(model_object(model)));
  });
}

void delete_model(const DoorPtr& door, const ExchangePtr& exchange) {
  const std::string& name = exchange->request().parameter("id");
  if (!is_adapter_id(name)) {
    return get_base(door, exchange, name, [exchange](const v1::Model& model) {
      http::refuse(*exchange,
                   base::invalid_field("model", "model '" + model.name() +
                                                    "' is a base model of this server's "
                                                    "operator; only adapters can be deleted"));
    });
  }
  v1::DeleteAdapterRequest request;
  request.set_id(name);
  if (!identify(*door, exchange, "", request)) return;
  answer_model<v1::DeleteAdapterResponse>(
      *door, exchange, kAdapters + "DeleteAdapter", request, name,
      [exchange](const v1::DeleteAdapterResponse& gone) {
        exchange->reply(http::json_reply(deleted_object(gone.id(), "model")));
      });
}

// ---- vLLM's names for load and unload ----

void answer_lora(const ExchangePtr& exchange, const v1::Adapter& adapter, const char* done) {
  const std::string accept = exchange->request().header("accept").value_or("");
  if (accept.find("application/json") != std::string::npos)
    return exchange->reply(http::json_reply(model_object(adapter, nullptr)));
  http::Reply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = "Success: LoRA adapter '" + adapter.id() + "' " + done + " successfully.";
  exchange->reply(std::move(reply));
}

void load_adapter(const DoorPtr& door, const ExchangePtr& exchange) {
  with_object(exchange, [&](const json& body) {
    auto request = read_load_adapter(body);
    if (!request.ok()) return http::refuse(*exchange, request.status());
    if (!identify(*door, exchange, exchange->request().body, request.value())) return;
    answer_model<v1::LoadAdapterResponse>(*door, exchange, kAdapters + "LoadAdapter",
                                          request.value(), request.value().id(),
                                          [exchange](const v1::LoadAdapterResponse& loaded) {
                                            answer_lora(exchange, loaded.adapter(), "added");
                                          });
  });
}

void unload_adapter(const DoorPtr& door, const ExchangePtr& exchange) {
  with_object(exchange, [&](const json& body) {
    auto request = read_unload_adapter(body);
    if (!request.ok()) return http::refuse(*exchange, request.status());
    if (!identify(*door, exchange, exchange->request().body, request.value())) return;
    answer_model<v1::Adapter>(
        *door, exchange, kAdapters + "UnloadAdapter", request.value(), request.value().id(),
        [exchange](const v1::Adapter& adapter) { answer_lora(exchange, adapter, "removed"); });
  });
}

}  // namespace

void add_model_routes(http::Router& router, const DoorPtr& door) {
  router.add("GET", "/v1/models",
             [door](const ExchangePtr& exchange) { list_models(door, exchange); });
  router.add("GET", "/v1/models/{id}",
             [door](const ExchangePtr& exchange) { get_model(door, exchange); });
  router.add("DELETE", "/v1/models/{id}",
             [door](const ExchangePtr& exchange) { delete_model(door, exchange); });
  router.add("POST", "/v1/load_lora_adapter",
             [door](const ExchangePtr& exchange) { load_adapter(door, exchange); });
  router.add("POST", "/v1/unload_lora_adapter",
             [door](const ExchangePtr& exchange) { unload_adapter(door, exchange); });
}

}  // namespace dex::gateway::openai
