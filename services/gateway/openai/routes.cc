#include "services/gateway/openai/routes.h"

#include "services/gateway/openai/door.h"

namespace dex::gateway::openai {

namespace {

bool is_replayed(const http::Headers& metadata) {
  for (const auto& [name, value] : metadata) {
    if (name == "dex-replayed" && value == "true") return true;
  }
  return false;
}

}  // namespace

void with_object(const http::ExchangePtr& exchange, const std::function<void(const json&)>& then) {
  const auto body = parse_object(exchange->request().body);
  if (!body.ok()) return http::refuse(*exchange, body.status());
  then(body.value());
}

http::Reply marked(http::Reply reply, const http::Headers& metadata) {
  if (is_replayed(metadata)) reply.headers.emplace_back("dex-replayed", "true");
  return reply;
}

// OpenAI has more than this server: a client that asks for it should read that, not "no route".
void add_other_routes(http::Router& router) {
  const auto refuse = [](const http::ExchangePtr& exchange) {
    http::refuse(*exchange,
                 base::Status(base::Code::kUnimplemented, "NOT_SUPPORTED",
                              "this server has no " + exchange->request().route.substr(0, 40) +
                                  "; /openapi.json lists what it has"));
  };
  http::RouteOptions options;
  options.body = http::Body::kStream;  // dropped unread
  for (const char* route : {"/v1/uploads", "/v1/embeddings", "/v1/responses", "/v1/batches",
                            "/v1/fine_tuning/checkpoints"}) {
    for (const char* method : {"GET", "POST", "DELETE"}) {
      router.add(method, route, refuse, options);
      router.add(method, std::string(route) + "/{rest...}", refuse, options);
    }
  }
}

void add_openai_routes(http::Router& router, http::Upstream& upstream, const rpc::Room& room) {
  const auto door = std::make_shared<Door>(upstream, room);
  add_file_routes(router, door);
  add_job_routes(router, door);
  add_event_routes(router, door);
  add_model_routes(router, door);
  add_lora_routes(router, door);
  add_generation_routes(router, door);
  add_tokenizer_routes(router, door);
  add_other_routes(router);
  router.add("GET", "/openapi.json", [](const http::ExchangePtr& exchange) {
    http::Reply reply;
    reply.body = openapi_text();
    exchange->reply(std::move(reply));
  });
}

}  // namespace dex::gateway::openai
