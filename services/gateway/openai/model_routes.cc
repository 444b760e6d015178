#include <algorithm>
#include <map>

#include "dex/v1/adapters.pb.h"
#include "dex/v1/models.pb.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/lists.h"
#include "services/gateway/openai/model_calls.h"
#include "services/gateway/openai/model_objects.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

const std::string kModels = "/dex.v1.ModelService/";

// ---- list: bases first, then adapters, then aliases, newest first ----

struct ModelList {
  v1::ListModelsResponse bases;
  json data = json::array();
  // Those of the list, by id. An alias of one that was published while the lists are read is left
  // out, as that adapter is.
  std::map<std::string, v1::Adapter> adapters;

  [[nodiscard]] const v1::Model* find(const std::string& name) const {
    const auto it = std::find_if(bases.models().begin(), bases.models().end(),
                                 [&](const auto& model) { return model.name() == name; });
    return it == bases.models().end() ? nullptr : &*it;
  }
};

void list_aliases(const DoorPtr& door, const ExchangePtr& exchange,
                  const std::shared_ptr<ModelList>& list) {
  v1::ListAdapterAliasesRequest request;
  request.set_page_size(1000);
  each_page<v1::ListAdapterAliasesRequest, v1::ListAdapterAliasesResponse>(
      door, exchange, kAdapters + "ListAdapterAliases", request,
      [list](v1::ListAdapterAliasesResponse& page) {
        for (const auto& alias : page.aliases()) {
          const auto adapter = list->adapters.find(alias.adapter());
          if (adapter == list->adapters.end()) continue;
          list->data.push_back(alias_object(alias.alias(), adapter->second,
                                            list->find(adapter->second.base_model())));
        }
        return false;
      },
      [exchange, list] {
        exchange->reply(http::json_reply(list_object(std::move(list->data), false)));
      });
}

void list_adapters(const DoorPtr& door, const ExchangePtr& exchange,
                   const std::shared_ptr<ModelList>& list) {
  v1::ListAdaptersRequest request;
  request.set_page_size(1000);
  each_page<v1::ListAdaptersRequest, v1::ListAdaptersResponse>(
      door, exchange, kAdapters + "ListAdapters", request,
      [list](v1::ListAdaptersResponse& page) {
        for (const auto& adapter : page.adapters()) {
          list->data.push_back(model_object(adapter, list->find(adapter.base_model())));
          list->adapters.emplace(adapter.id(), adapter);
        }
        return false;
      },
      [door, exchange, list] { list_aliases(door, exchange, list); });
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

// `then` with the base of that name, `otherwise` when there is none.
void base_or(const DoorPtr& door, const ExchangePtr& exchange, const std::string& name,
             std::function<void(const v1::Model&)> then, std::function<void()> otherwise) {
  v1::GetModelRequest request;
  request.set_name(name);
  door->upstream.call<v1::Model>(
      exchange, kModels + "GetModel", request,
      [exchange, then = std::move(then),
       otherwise = std::move(otherwise)](const http::Answer<v1::Model>& answer) {
        if (answer.status.ok()) return then(answer.message);
        if (answer.status.error_code() == grpc::StatusCode::NOT_FOUND) return otherwise();
        http::refuse(*exchange, answer.status);
      });
}

// The adapter with its base's context length; a base that is not listed any more does not hide it.
// `alias`: what it was asked for by; empty: its id.
void show_adapter(const DoorPtr& door, const ExchangePtr& exchange, const v1::Adapter& adapter,
                  const std::string& alias) {
  v1::GetModelRequest request;
  request.set_name(adapter.base_model());
  door->upstream.call<v1::Model>(
      exchange, kModels + "GetModel", request,
      [exchange, adapter, alias](const http::Answer<v1::Model>& base) {
        const v1::Model* model = base.status.ok() ? &base.message : nullptr;
        exchange->reply(http::json_reply(alias.empty() ? model_object(adapter, model)
                                                       : alias_object(alias, adapter, model)));
      });
}

void get_model(const DoorPtr& door, const ExchangePtr& exchange) {
  const std::string& name = exchange->request().parameter("id");
  const auto show = [door, exchange, name] {
    get_adapter(door, exchange, name, [door, exchange, name](const v1::Adapter& adapter) {
      show_adapter(door, exchange, adapter, is_adapter_id(name) ? "" : name);
    });
  };
  if (is_adapter_id(name)) return show();
  base_or(
      door, exchange, name,
      [exchange](const v1::Model& model) {
        exchange->reply(http::json_reply(model_object(model)));
      },
      show);
}

void delete_model(const DoorPtr& door, const ExchangePtr& exchange) {
  const std::string& name = exchange->request().parameter("id");
  if (!is_adapter_id(name)) {
    return base_or(
        door, exchange, name,
        [exchange](const v1::Model& model) {
          http::refuse(*exchange,
                       base::invalid_field("model", "model '" + model.name() +
                                                        "' is a base model of this server's "
                                                        "operator; only adapters and aliases can "
                                                        "be deleted"));
        },
        [door, exchange, name] {
          delete_alias(door, exchange, name, [exchange](const v1::AdapterAlias& gone) {
            exchange->reply(http::json_reply(deleted_object(gone.alias(), "model")));
          });
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

}  // namespace

void add_model_routes(http::Router& router, const DoorPtr& door) {
  router.add("GET", "/v1/models",
             [door](const ExchangePtr& exchange) { list_models(door, exchange); });
  router.add("GET", "/v1/models/{id}",
             [door](const ExchangePtr& exchange) { get_model(door, exchange); });
  router.add("DELETE", "/v1/models/{id}",
             [door](const ExchangePtr& exchange) { delete_model(door, exchange); });
}

}  // namespace dex::gateway::openai
