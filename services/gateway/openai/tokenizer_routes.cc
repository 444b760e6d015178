#include <algorithm>

#include "dex/v1/models.pb.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/tokenizer_request.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

const std::string kInference = "/dex.v1.InferenceService/";

// The model that is meant where none is named: the first base that a worker serves, else the first.
void with_default_model(const DoorPtr& door, const ExchangePtr& exchange, const std::string& named,
                        std::function<void(const std::string&)> then) {
  if (!named.empty()) return then(named);
  door->upstream.call<v1::ListModelsResponse>(
      exchange, "/dex.v1.ModelService/ListModels", v1::ListModelsRequest(),
      [exchange, then = std::move(then)](const http::Answer<v1::ListModelsResponse>& answer) {
        if (!answer.status.ok()) return http::refuse(*exchange, answer.status);
        const auto& models = answer.message.models();
        auto it = std::find_if(models.begin(), models.end(),
                               [](const v1::Model& model) { return model.served(); });
        if (it == models.end()) it = models.begin();
        if (it == models.end()) {
          return http::refuse(*exchange,
                              base::not_found("MODEL_NOT_FOUND", "this server has no base models"));
        }
        then(it->name());
      });
}

json token_list(const v1::TokenizeResponse& reply) {
  return {{"count", reply.ids_size()},
          {"max_model_len", reply.max_model_len()},
          {"tokens", std::vector<int32_t>(reply.ids().begin(), reply.ids().end())}};
}

json prompt_of(const v1::DetokenizeResponse& reply) {
  return {{"prompt", reply.text()}};
}

json info_of(const v1::TokenizerInfo& info) {
  const auto or_null = [](bool there, const std::string& text) {
    return there ? json(text) : json();
  };
  return {{"bos_token", or_null(info.has_bos_token(), info.bos_token())},
          {"eos_token", or_null(info.has_eos_token(), info.eos_token())},
          {"pad_token", or_null(info.has_pad_token(), info.pad_token())},
          {"chat_template", or_null(info.has_chat_template(), info.chat_template())},
          {"tokenizer_sha256", info.tokenizer_sha256()}};
}

// A body that `read` makes a request of, asked of the model that it names.
template <typename Request, typename Reply>
http::Handler ask(const DoorPtr& door, const char* rpc, base::Result<Request> (*read)(const json&),
                  json (*shown)(const Reply&)) {
  return [=](const ExchangePtr& exchange) {
    with_object(exchange, [&](const json& body) {
      auto request = read(body);
      if (!request.ok()) return http::refuse(*exchange, request.status());
      with_default_model(door, exchange, request.value().model(),
                         [=, request = request.value()](const std::string& model) mutable {
                           request.set_model(model);
                           answer_with<Reply>(*door, exchange, kInference + rpc, request, shown);
                         });
    });
  };
}

void tokenizer_info(const DoorPtr& door, const ExchangePtr& exchange) {
  for (const auto& [name, value] : exchange->request().query) {
    if (name != "model") {
      return http::refuse(*exchange, base::bad_field("UNKNOWN_FIELD", name.substr(0, 100),
                                                     "is not known; did you mean model?"));
    }
  }
  with_default_model(door, exchange, exchange->request().query_value("model").value_or(""),
                     [door, exchange](const std::string& model) {
                       v1::GetTokenizerInfoRequest request;
                       request.set_model(model);
                       answer_with<v1::TokenizerInfo>(
                           *door, exchange, kInference + "GetTokenizerInfo", request, info_of);
                     });
}

}  // namespace

void add_tokenizer_routes(http::Router& router, const DoorPtr& door) {
  router.add(
      "POST", "/tokenize",
      ask<v1::TokenizeRequest, v1::TokenizeResponse>(door, "Tokenize", read_tokenize, token_list));
  router.add("POST", "/detokenize",
             ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(door, "Detokenize", read_detokenize,
                                                                prompt_of));
  router.add("GET", "/tokenizer_info",
             [door](const ExchangePtr& exchange) { tokenizer_info(door, exchange); });
}

}  // namespace dex::gateway::openai
