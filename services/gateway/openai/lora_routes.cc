// vLLM's names for load and unload, and what they do to aliases (api.md §7).
#include <chrono>

#include "services/gateway/openai/adapter_request.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/lists.h"
#include "services/gateway/openai/model_calls.h"
#include "services/gateway/openai/model_objects.h"
#include "services/rpc/status.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

// Above what a load waits for the workers, 60 s, which the scheduler ends in its own words.
constexpr std::chrono::seconds kLongestLoad{90};

void answer_lora(const ExchangePtr& exchange, const std::string& name, const v1::Adapter& adapter,
                 const char* done) {
  const std::string accept = exchange->request().header("accept").value_or("");
  if (accept.find("application/json") != std::string::npos) {
    return exchange->reply(http::json_reply(is_adapter_id(name)
                                                ? model_object(adapter, nullptr)
                                                : alias_object(name, adapter, nullptr)));
  }
  http::Reply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = "Success: LoRA adapter '" + name + "' " + done + " successfully.";
  exchange->reply(std::move(reply));
}

// vLLM answers 400 for a name that is taken.
grpc::Status as_taken_name(const grpc::Status& status) {
  if (rpc::from_grpc(status).reason() != "NAME_TAKEN") return status;
  return rpc::to_grpc(
      base::invalid_field("lora_name",
                          "is an alias already; with \"load_inplace\": true it moves to lora_path"),
      "");
}

void load_under_alias(const DoorPtr& door, const ExchangePtr& exchange, const LoraLoad& load) {
  v1::SetAdapterAliasRequest request;
  request.set_alias(load.alias);
  request.set_adapter(load.adapter);
  request.set_create_only(!load.in_place);
  if (!identify(*door, exchange, exchange->request().body, request)) return;
  http::CallOptions options;
  options.timeout = kLongestLoad;
  door->upstream.call<v1::AdapterAlias>(
      exchange, kAdapters + "SetAdapterAlias", request,
      [door, exchange, load](const http::Answer<v1::AdapterAlias>& set) {
        if (!set.status.ok())
          return http::refuse(*exchange, as_model(as_taken_name(set.status), load.adapter));
        get_adapter(door, exchange, set.message.adapter(),
                    [exchange, load](const v1::Adapter& adapter) {
                      answer_lora(exchange, load.alias, adapter, "added");
                    });
      },
      options);
}

void load_adapter(const DoorPtr& door, const ExchangePtr& exchange) {
  with_object(exchange, [&](const json& body) {
    const auto load = read_load_adapter(body);
    if (!load.ok()) return http::refuse(*exchange, load.status());
    if (!load->alias.empty()) return load_under_alias(door, exchange, *load);
    v1::LoadAdapterRequest request;
    request.set_id(load->adapter);
    if (!identify(*door, exchange, exchange->request().body, request)) return;
    answer_model<v1::LoadAdapterResponse>(
        *door, exchange, kAdapters + "LoadAdapter", request, request.id(),
        [exchange](const v1::LoadAdapterResponse& loaded) {
          answer_lora(exchange, loaded.adapter().id(), loaded.adapter(), "added");
        });
  });
}

// `name`: what the client calls it.
void unload(const DoorPtr& door, const ExchangePtr& exchange,
            const v1::UnloadAdapterRequest& request, const std::string& name) {
  answer_model<v1::Adapter>(*door, exchange, kAdapters + "UnloadAdapter", request, request.id(),
                            [exchange, name](const v1::Adapter& adapter) {
                              answer_lora(exchange, name, adapter, "removed");
                            });
}

// An alias goes, and its adapter leaves the memory with the last one unless it is pinned: who loads
// by a name knows no other.
void unload_alias(const DoorPtr& door, const ExchangePtr& exchange, const std::string& alias) {
  delete_alias(door, exchange, alias, [door, exchange, alias](const v1::AdapterAlias& gone) {
    if (gone.adapter().empty())  // a repeat, which says no more than that it is gone
      return exchange->reply(http::json_reply(deleted_object(alias, "model")));
    get_adapter(door, exchange, gone.adapter(),
                [door, exchange, alias](const v1::Adapter& adapter) {
                  if (!adapter.aliases().empty() || adapter.pinned())
                    return answer_lora(exchange, alias, adapter, "removed");
                  v1::UnloadAdapterRequest request;  // the client's key is the alias's
                  request.set_id(adapter.id());
                  unload(door, exchange, request, alias);
                });
  });
}

void unload_adapter(const DoorPtr& door, const ExchangePtr& exchange) {
  with_object(exchange, [&](const json& body) {
    const auto name = read_unload_adapter(body);
    if (!name.ok()) return http::refuse(*exchange, name.status());
    if (!is_adapter_id(*name)) return unload_alias(door, exchange, *name);
    v1::UnloadAdapterRequest request;
    request.set_id(*name);
    if (!identify(*door, exchange, exchange->request().body, request)) return;
    unload(door, exchange, request, *name);
  });
}

}  // namespace

void add_lora_routes(http::Router& router, const DoorPtr& door) {
  router.add("POST", "/v1/load_lora_adapter",
             [door](const ExchangePtr& exchange) { load_adapter(door, exchange); });
  router.add("POST", "/v1/unload_lora_adapter",
             [door](const ExchangePtr& exchange) { unload_adapter(door, exchange); });
}

}  // namespace dex::gateway::openai
