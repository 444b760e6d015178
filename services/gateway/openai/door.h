#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"
#include "services/gateway/openai/json_body.h"
#include "services/gateway/openai/repeats.h"
#include "services/rpc/room.h"

// What the routes of this folder share.
namespace dex::gateway::openai {

// Kept by the handlers, which the router keeps. Thread-safe.
struct Door {
  Door(http::Upstream& upstream, const rpc::Room& room) : upstream(upstream), room(room) {}

  http::Upstream& upstream;  // both outlive the server
  const rpc::Room& room;
  const base::SystemClock clock;
  Repeats repeats{clock, {}};

  // The tenant that asks, which jobs tell as organization_id; empty: the call will be refused.
  [[nodiscard]] std::string tenant_of(const http::Exchange& exchange) const {
    const auto caller = room.authenticate(exchange.request().header("authorization"));
    return caller.ok() ? caller.value().tenant() : std::string();
  }
};
using DoorPtr = std::shared_ptr<Door>;

// Parses the body and hands the object on; or refuses it.
void with_object(const http::ExchangePtr& exchange, const std::function<void(const json&)>& then);

// Gives a mutating request its request_id (repeats.h), `content` being what a repeat must have
// equal; false: refused.
template <typename Message>
bool identify(Door& door, const http::ExchangePtr& exchange, std::string_view content,
              Message& message) {
  auto id = door.repeats.request_id(exchange->request(), content);
  if (!id.ok()) {
    http::refuse(*exchange, id.status());
    return false;
  }
  message.set_request_id(std::move(id).value());
  return true;
}

// The reply to a mutating call; `dex-replayed` where it was one already.
http::Reply marked(http::Reply reply, const http::Headers& metadata);

// Calls and answers with what `to_json` makes of the reply; failures as they came.
template <typename R>
void answer_with(Door& door, const http::ExchangePtr& exchange, const std::string& path,
                 const google::protobuf::Message& request, std::function<json(const R&)> to_json) {
  door.upstream.call<R>(
      exchange, path, request, [exchange, to_json = std::move(to_json)](http::Answer<R> answer) {
        if (!answer.status.ok()) return http::refuse(*exchange, answer.status);
        exchange->reply(marked(http::json_reply(to_json(answer.message)), answer.metadata));
      });
}

// Asks for page after page of a list until `enough` says so of a page, or there are no more; then
// calls `done`. Failures answer the exchange. `R` has next_page_token.
template <typename Request, typename R>
void each_page(const DoorPtr& door, const http::ExchangePtr& exchange, const std::string& path,
               Request request, std::function<bool(R&)> enough, std::function<void()> done) {
  door->upstream.call<R>(exchange, path, request, [=](http::Answer<R> answer) mutable {
    if (!answer.status.ok()) return http::refuse(*exchange, answer.status);
    const bool last = enough(answer.message) || answer.message.next_page_token().empty();
    if (last) return done();
    if constexpr (requires { request.clear_after(); }) request.clear_after();
    request.set_page_token(answer.message.next_page_token());
    each_page<Request, R>(door, exchange, path, std::move(request), std::move(enough),
                          std::move(done));
  });
}

void add_file_routes(http::Router& router, const DoorPtr& door);
void add_job_routes(http::Router& router, const DoorPtr& door);
void add_event_routes(http::Router& router, const DoorPtr& door);
void add_model_routes(http::Router& router, const DoorPtr& door);
void add_lora_routes(http::Router& router, const DoorPtr& door);
void add_generation_routes(http::Router& router, const DoorPtr& door);
void add_tokenizer_routes(http::Router& router, const DoorPtr& door);
void add_other_routes(http::Router& router);

}  // namespace dex::gateway::openai
