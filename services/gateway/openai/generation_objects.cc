#include "services/gateway/openai/generation_objects.h"

#include "services/gateway/openai/proto_json.h"

namespace dex::gateway::openai {

namespace {

// "gen-01jd…" → "chatcmpl-01jd…", as clients expect to see it.
std::string public_id(const GenerationPlan& plan, const std::string& id) {
  const size_t dash = id.find('-');
  return (plan.chat ? "chatcmpl-" : "cmpl-") +
         (dash == std::string::npos ? id : id.substr(dash + 1));
}

// "stop", "length"; "cancelled" where it was broken off.
json finish_word(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_UNSPECIFIED) return nullptr;
  return lower_name(v1::FinishReason_Name(reason), "FINISH_REASON_");
}

// The stop string or token id that ended it, as vLLM tells it.
json stop_reason(const std::string& reason) {
  return reason.empty() ? json() : json(reason);
}

// A prompt counts once, however many choices it has.
json usage_json(const GenerationPlan& plan, const std::vector<v1::Usage>& usages) {
  int64_t prompt = 0, completion = 0;
  for (size_t i = 0; i < usages.size(); ++i) {
    if (i % static_cast<size_t>(plan.choices_per_prompt) == 0) prompt += usages[i].prompt_tokens();
    completion += usages[i].completion_tokens();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion}};
}

json ids_json(const google::protobuf::RepeatedField<int32_t>& ids) {
  return std::vector<int32_t>(ids.begin(), ids.end());
}

template <typename Reply>
json dex_json(const Reply& reply) {
  return {{"adapter", reply.has_adapter() ? to_json(reply.adapter()) : json()},
          {"seed", reply.seed()},
          {"warnings", json::array()}};
}

template <typename Reply>
json head_json(const GenerationPlan& plan, const Reply& reply, const char* object) {
  return {{"id", public_id(plan, reply.id())},
          {"object", object},
          {"created", reply.create_time().seconds()},
          {"model", reply.model()},
          {"system_fingerprint", reply.system_fingerprint()}};
}

json choice_json(const GenerationPlan& plan, size_t index, const v1::GenerateResponse& reply) {
  const bool wanted = plan.requests[index].has_logprobs();
  TextPosition position;
  json choice = {{"index", index},
                 {"finish_reason", finish_word(reply.finish_reason())},
                 {"stop_reason", stop_reason(reply.stop_reason())},
                 {"logprobs", nullptr}};
  if (plan.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", reply.text()}, {"refusal", nullptr}};
    if (wanted) choice["logprobs"] = chat_logprobs(reply.logprobs(), plan.top_logprobs);
  } else {
    choice["text"] = reply.text();
    if (wanted) choice["logprobs"] = completion_logprobs(reply.logprobs(), position);
  }
  if (plan.requests[index].return_token_ids()) choice["token_ids"] = ids_json(reply.token_ids());
  return choice;
}

}  // namespace

json generation_object(const GenerationPlan& plan,
                       const std::vector<v1::GenerateResponse>& replies) {
  json object = head_json(plan, replies.front(), plan.chat ? "chat.completion" : "text_completion");
  object["choices"] = json::array();
  std::vector<v1::Usage> usages;
  for (size_t i = 0; i < replies.size(); ++i) {
    object["choices"].push_back(choice_json(plan, i, replies[i]));
    usages.push_back(replies[i].usage());
  }
  object["usage"] = usage_json(plan, usages);
  object["dex"] = dex_json(replies.front());
  return object;
}

http::Headers adapter_headers(bool has_adapter, const v1::AdapterUsed& adapter) {
  if (!has_adapter) return {};
  return {{"x-dex-adapter", adapter.id()}, {"x-dex-adapter-sha256", adapter.content_sha256()}};
}

ChunkMaker::ChunkMaker(const GenerationPlan& plan)
    : plan_(plan),
      positions_(plan.requests.size()),
      told_(plan.requests.size()),
      usages_(plan.requests.size()) {}

json ChunkMaker::chunk(json choices) const {
  json object = head_.value_or(json::object());
  object["choices"] = std::move(choices);
  if (plan_.include_usage) object["usage"] = nullptr;
  return object;
}

std::optional<json> ChunkMaker::start(size_t choice,
                                      const v1::GenerateStreamResponse::Start& start) {
  if (!head_) {
    head_ = head_json(plan_, start, plan_.chat ? "chat.completion.chunk" : "text_completion");
    dex_ = dex_json(start);
  }
  if (!plan_.chat) return std::nullopt;
  json first = chunk(json::array({{{"index", choice},
                                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                                   {"finish_reason", nullptr},
                                   {"logprobs", nullptr}}}));
  first["dex"] = dex_;
  told_[choice] = true;
  return first;
}

std::optional<json> ChunkMaker::delta(size_t choice,
                                      const v1::GenerateStreamResponse::Delta& delta) {
  if (delta.text().empty() && delta.logprobs().empty() && delta.token_ids().empty())
    return std::nullopt;
  const auto& request = plan_.requests[choice];
  json item = {{"index", choice}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (plan_.chat) {
    item["delta"] = {{"content", delta.text()}};
    if (request.has_logprobs())
      item["logprobs"] = chat_logprobs(delta.logprobs(), plan_.top_logprobs);
  } else {
    item["text"] = delta.text();
    if (request.has_logprobs())
      item["logprobs"] = completion_logprobs(delta.logprobs(), positions_[choice]);
  }
  if (request.return_token_ids()) item["token_ids"] = ids_json(delta.token_ids());
  json object = chunk(json::array({std::move(item)}));
  if (!told_[choice]) object["dex"] = dex_;
  told_[choice] = true;
  return object;
}

json ChunkMaker::finish(size_t choice, const v1::GenerateStreamResponse::Finish& finish) {
  usages_[choice] = finish.usage();
  ++finished_;
  json item = {{"index", choice},
               {"finish_reason", finish_word(finish.finish_reason())},
               {"stop_reason", stop_reason(finish.stop_reason())},
               {"logprobs", nullptr}};
  if (plan_.chat) {
    item["delta"] = json::object();
  } else {
    item["text"] = "";
  }
  json object = chunk(json::array({std::move(item)}));
  if (!told_[choice]) object["dex"] = dex_;
  told_[choice] = true;
  return object;
}

json ChunkMaker::usage() const {
  json object = chunk(json::array());
  object["usage"] = usage_json(plan_, usages_);
  return object;
}

}  // namespace dex::gateway::openai
