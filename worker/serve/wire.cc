#include "worker/serve/wire.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dex::serve::wire {
namespace {

// No token of a real vocabulary is longer; beyond it a text can't fit and need not be encoded to be
// refused.
constexpr int64_t kMostBytesPerToken = 256;
constexpr int32_t kChatTokens = 4096;
constexpr int32_t kPromptTokens = 16;

template <typename T>
int32_t clamp_int(T value) {
  return static_cast<int32_t>(std::min<uint64_t>(value, INT32_MAX));
}

base::Status too_long(size_t bytes, const RequestLimits& limits) {
  return base::invalid_argument("CONTEXT_LENGTH_EXCEEDED",
                                "the input has " + std::to_string(bytes) +
                                    " bytes, far more than the model's context of " +
                                    std::to_string(limits.context_tokens) + " tokens");
}

base::Result<std::vector<int32_t>> read_prompt(const pb::GenerateRequest& in, const TextModel& text,
                                               const RequestLimits& limits) {
  const auto most = static_cast<size_t>(limits.context_tokens * kMostBytesPerToken);
  switch (in.input_case()) {
    case pb::GenerateRequest::kPrompt:
      if (in.prompt().size() > most) return too_long(in.prompt().size(), limits);
      return text.encode_prompt(in.prompt());
    case pb::GenerateRequest::kChat: {
      std::vector<text::Message> messages;
      size_t bytes = 0;
      for (const auto& message : in.chat().messages()) {
        messages.push_back({.role = message.role(), .content = message.content()});
        bytes += message.content().size();
      }
      if (messages.empty()) {
        return base::invalid_argument("MISSING_FIELD",
                                      "chat.messages must have at least one message")
            .with_violation("chat.messages", "must have at least one message");
      }
      if (bytes > most) return too_long(bytes, limits);
      return text.encode_chat(messages);
    }
    case pb::GenerateRequest::kTokens:
      return std::vector<int32_t>(in.tokens().ids().begin(), in.tokens().ids().end());
    case pb::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return base::invalid_argument("MISSING_FIELD", "one of prompt, chat and tokens must be set")
      .with_violation("prompt", "one of prompt, chat and tokens must be set");
}

pb::FinishReason reason(FinishReason in) {
  switch (in) {
    case FinishReason::kStop:
      return pb::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return pb::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return pb::FINISH_REASON_CANCELLED;
  }
  return pb::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

base::Result<Request> read_request(const pb::GenerateRequest& in, const TextModel& text,
                                   const RequestLimits& limits, uint64_t seed) {
  Request out;
  DEX_ASSIGN_OR_RETURN(out.prompt, read_prompt(in, text, limits));
  const bool chat = in.input_case() == pb::GenerateRequest::kChat;
  const auto room = std::max(1, limits.context_tokens - clamp_int(out.prompt.size()));
  out.max_tokens = in.has_max_tokens() ? clamp_int(in.max_tokens())
                   : chat              ? std::min(kChatTokens, room)
                                       : kPromptTokens;
  out.min_tokens = clamp_int(in.min_tokens());
  Sampling& s = out.sampling;
  if (in.has_temperature()) s.temperature = in.temperature();
  if (in.has_top_p()) s.top_p = in.top_p();
  s.top_k = clamp_int(in.top_k());
  s.min_p = in.min_p();
  if (in.has_repetition_penalty()) s.repetition_penalty = in.repetition_penalty();
  s.presence_penalty = in.presence_penalty();
  s.frequency_penalty = in.frequency_penalty();
  s.seed = in.has_seed() ? in.seed() : seed;
  out.stop.assign(in.stop().begin(), in.stop().end());
  out.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  out.ignore_eos = in.ignore_eos();
  if (in.has_logprobs()) out.top_logprobs = clamp_int(in.logprobs());
  out.echo = in.echo();
  if (in.has_dex_lambda_scale()) out.dex_lambda_scale = in.dex_lambda_scale();
  if (in.has_timeout_seconds()) {
    const double ms = in.timeout_seconds() * 1000;
    out.timeout_ms =
        ms > 0 && ms < 1e12 ? static_cast<int64_t>(std::ceil(ms)) : -1;  // validate() refuses −1
  }
  return out;
}

void write(const Delta& in, bool token_ids, pb::GenerateStreamResponse::Delta& out) {
  out.set_text(in.text);
  if (token_ids) out.mutable_token_ids()->Add(in.tokens.begin(), in.tokens.end());
  for (const TokenLogprob& entry : in.logprobs) {
    auto& to = *out.add_logprobs();
    to.set_token_id(entry.token);
    to.set_token(entry.text);
    if (entry.logprob) to.set_logprob(*entry.logprob);
    for (const auto& top : entry.top) {
      auto& t = *to.add_top();
      t.set_token_id(top.token);
      t.set_token(top.text);
      t.set_logprob(top.logprob);
    }
  }
}

void write(const Outcome& in, pb::GenerateStreamResponse::Finish& out) {
  out.set_finish_reason(reason(in.reason));
  out.set_stop_reason(in.stop_reason);
  auto& usage = *out.mutable_usage();
  usage.set_prompt_tokens(in.prompt_tokens);
  usage.set_completion_tokens(in.completion_tokens);
  usage.set_total_tokens(in.prompt_tokens + in.completion_tokens);
  auto& timing = *out.mutable_timing();
  timing.set_queue_ms(in.queue_ms);
  timing.set_first_token_ms(in.first_token_ms);
  timing.set_total_ms(in.total_ms);
}

void write(const base::Status& in, frames::EngineReport::Error& out) {
  out.set_code(static_cast<int32_t>(in.code()));
  out.set_reason(in.reason());
  out.set_message(in.message());
  if (!in.violations().empty()) out.set_field(in.violations().front().field);
}

}  // namespace dex::serve::wire
