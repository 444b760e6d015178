#include "services/gateway/openai/generation_request.h"

#include <algorithm>

#include "services/gateway/openai/chat_messages.h"

namespace dex::gateway::openai {

namespace {

constexpr int64_t kMostInt = INT32_MAX;

// Fields of OpenAI's, of vLLM's and of api.md §6 that this server does not have.
void refuse_others(ObjectReader& reader) {
  reader.refuse({"add_special_tokens",
                 "audio",
                 "function_call",
                 "functions",
                 "guided_json",
                 "guided_regex",
                 "length_penalty",
                 "modalities",
                 "moderation",
                 "prediction",
                 "priority",
                 "prompt_cache_retention",
                 "prompt_logprobs",
                 "reasoning_effort",
                 "skip_special_tokens",
                 "suffix",
                 "tool_choice",
                 "truncate_prompt_tokens",
                 "use_beam_search",
                 "verbosity",
                 "web_search_options"});
}

// No effect is possible, or the value is the one that holds anyway.
void accept_others(ObjectReader& reader) {
  reader.accept({"user", "metadata", "service_tier", "parallel_tool_calls", "prompt_cache_key",
                 "safety_identifier"});
  if (reader.boolean("store").value_or(false))
    reader.unsupported("store", "must be false: this server keeps no completions");
  const json* tools = reader.take("tools");
  if (tools != nullptr && !(tools->is_array() && tools->empty()))
    reader.unsupported("tools", "are not supported by this server; leave them out");
  const json* bias = reader.take("logit_bias");
  if (bias != nullptr && !(bias->is_object() && bias->empty()))
    reader.unsupported("logit_bias", "is not supported by this server; leave it out");
  const json* format = reader.take("response_format");
  if (format != nullptr && *format != json{{"type", "text"}})
    reader.unsupported("response_format", "must be {\"type\": \"text\"}");
}

void read_stream(ObjectReader& reader, GenerationPlan& plan) {
  plan.stream = reader.boolean("stream").value_or(false);
  const json* options = reader.take("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return reader.faults().add("INVALID_FIELD", "stream_options", "must be a JSON object");
  }
  ObjectReader inner(*options, "stream_options", reader.faults());
  plan.include_usage = inner.boolean("include_usage").value_or(false);
  (void)inner.boolean("include_obfuscation");  // chunks are never padded
  for (const char* key : {"continuous_usage", "continuous_usage_stats"}) {
    if (inner.boolean(key).value_or(false))
      inner.unsupported(key, "is not supported; include_usage gives it at the end");
  }
  inner.end();
  if (!plan.stream)
    reader.faults().add("UNUSED_FIELD", "stream_options", "has no effect without stream: true");
}

void read_stops(ObjectReader& reader, v1::GenerateRequest& request) {
  if (const auto stops = reader.texts("stop", kMostStops)) {
    for (const auto& stop : *stops) request.add_stop(stop);
  }
  if (const auto ids = reader.integers("stop_token_ids", 0, kMostInt)) {
    for (const auto id : *ids) request.add_stop_token_ids(static_cast<int32_t>(id));
  }
}

// What both routes share, into a request without its input.
void read_common(ObjectReader& reader, GenerationPlan& plan, v1::GenerateRequest& request) {
  request.set_model(reader.required_text("model"));
  if (const auto adapter = reader.text("adapter")) request.set_adapter(*adapter);
  if (const auto v = reader.number("temperature")) request.set_temperature(*v);
  if (const auto v = reader.number("top_p")) request.set_top_p(*v);
  if (const auto v = reader.integer("top_k", -1, kMostInt))  // vLLM writes "off" as -1
    request.set_top_k(static_cast<uint32_t>(std::max<int64_t>(0, *v)));
  if (const auto v = reader.number("min_p")) request.set_min_p(*v);
  if (const auto v = reader.number("repetition_penalty")) request.set_repetition_penalty(*v);
  if (const auto v = reader.number("presence_penalty")) request.set_presence_penalty(*v);
  if (const auto v = reader.number("frequency_penalty")) request.set_frequency_penalty(*v);
  if (const auto v = reader.integer("seed", 0, INT64_MAX))
    request.set_seed(static_cast<uint64_t>(*v));
  if (const auto v = reader.boolean("ignore_eos")) request.set_ignore_eos(*v);
  if (const auto v = reader.integer("min_tokens", 0, kMostInt))
    request.set_min_tokens(static_cast<uint32_t>(*v));
  if (const auto v = reader.boolean("return_token_ids")) request.set_return_token_ids(*v);
  if (const auto v = reader.number("timeout_seconds")) request.set_timeout_seconds(*v);
  if (const auto v = reader.number("dex_lambda_scale")) request.set_dex_lambda_scale(*v);
  plan.choices_per_prompt = static_cast<int>(reader.integer("n", 1, 16).value_or(1));
  read_stops(reader, request);
  read_stream(reader, plan);
  accept_others(reader);
  refuse_others(reader);
}

// The inputs, each `n` times, all else alike.
void multiply(const std::vector<v1::GenerateRequest>& inputs, GenerationPlan& plan,
              Faults& faults) {
  const auto n = static_cast<size_t>(plan.choices_per_prompt);
  if (inputs.size() * n > kMostChoices) {
    return faults.add("VALUE_OUT_OF_RANGE", "n",
                      "times the number of prompts must be at most " +
                          std::to_string(kMostChoices) + ", got " +
                          std::to_string(inputs.size() * n));
  }
  for (const auto& input : inputs) {
    for (size_t choice = 0; choice < n; ++choice) {
      auto& request = plan.requests.emplace_back(input);
      if (request.has_seed()) request.set_seed(request.seed() + choice);
    }
  }
}

bool all_numbers(const json& list) {
  return std::all_of(list.begin(), list.end(), [](const json& v) { return v.is_number(); });
}

void read_ids(const json& list, const std::string& path, Faults& faults,
              v1::GenerateRequest& request) {
  const json object = {{"ids", list}};
  ObjectReader reader(object, path, faults);
  auto& tokens = *request.mutable_tokens();
  if (const auto ids = reader.integers("ids", 0, kMostInt)) {
    for (const auto id : *ids) tokens.add_ids(static_cast<int32_t>(id));
  }
}

// One request a prompt, on top of `common`.
std::vector<v1::GenerateRequest> read_prompts(ObjectReader& reader,
                                              const v1::GenerateRequest& common) {
  std::vector<v1::GenerateRequest> inputs;
  Faults& faults = reader.faults();
  const json* prompt = reader.take("prompt");
  if (prompt == nullptr || (prompt->is_array() && prompt->empty())) {
    faults.add("MISSING_FIELD", "prompt", "must be given");
    return inputs;
  }
  const bool one = prompt->is_string() || (prompt->is_array() && all_numbers(*prompt));
  const json list = one ? json::array({*prompt}) : *prompt;
  const std::string wanted = "must be a string, a list of strings, of token ids, or of such lists";
  if (!list.is_array()) {
    faults.add("INVALID_FIELD", "prompt", wanted);
    return inputs;
  }
  if (list.size() > kMostChoices) {
    faults.add("VALUE_OUT_OF_RANGE", "prompt",
               "holds at most " + std::to_string(kMostChoices) + " prompts, got " +
                   std::to_string(list.size()));
    return inputs;
  }
  for (const json& item : list) {
    const std::string path = one ? "prompt" : "prompt[" + std::to_string(inputs.size()) + "]";
    auto& request = inputs.emplace_back(common);
    if (item.is_string()) {
      request.set_prompt(item.get<std::string>());
    } else if (item.is_array() && !item.empty()) {
      read_ids(item, path, faults, request);
    } else {
      faults.add("INVALID_FIELD", path, wanted);
      return inputs;
    }
  }
  return inputs;
}

// max_tokens, in a chat also by its newer name.
void read_max_tokens(ObjectReader& reader, v1::GenerateRequest& request) {
  const auto old = reader.integer("max_tokens", 0, kMostInt);
  const auto newer = reader.integer("max_completion_tokens", 0, kMostInt);
  if (old && newer && *old != *newer) {
    reader.faults().add("CONFLICTING_FIELDS", "max_completion_tokens",
                        "differs from max_tokens; give one of them");
  }
  const auto most = newer ? newer : old;
  if (most) request.set_max_tokens(static_cast<uint32_t>(*most));
}

}  // namespace

base::Result<GenerationPlan> read_chat(const json& body) {
  Faults faults;
  GenerationPlan plan;
  plan.chat = true;
  v1::GenerateRequest request;
  ObjectReader reader(body, "", faults);
  read_common(reader, plan, request);
  read_max_tokens(reader, request);
  read_messages(reader, *request.mutable_chat());
  const bool logprobs = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !logprobs)
    faults.add("UNUSED_FIELD", "top_logprobs", "has no effect without logprobs: true");
  if (logprobs) {
    plan.top_logprobs = static_cast<int>(top.value_or(0));
    request.set_logprobs(static_cast<uint32_t>(plan.top_logprobs));
  }
  reader.end();
  multiply({request}, plan, faults);
  DEX_RETURN_IF_ERROR(faults.status());
  return plan;
}

base::Result<GenerationPlan> read_completion(const json& body) {
  Faults faults;
  GenerationPlan plan;
  v1::GenerateRequest common;
  ObjectReader reader(body, "", faults);
  read_common(reader, plan, common);
  read_max_tokens(reader, common);
  if (const auto echo = reader.boolean("echo")) common.set_echo(*echo);
  if (const auto top = reader.integer("logprobs", 0, 20))
    common.set_logprobs(static_cast<uint32_t>(*top));
  // The best of as many as are asked for are all of them.
  const auto best_of = reader.integer("best_of", 1, 16);
  if (best_of && *best_of != plan.choices_per_prompt)
    reader.unsupported("best_of", "must equal n; the server does not rank completions");
  const auto inputs = read_prompts(reader, common);
  reader.end();
  multiply(inputs, plan, faults);
  DEX_RETURN_IF_ERROR(faults.status());
  return plan;
}

}  // namespace dex::gateway::openai
