#include "worker/serve/request.h"

#include <cmath>
#include <string>

namespace dex::serve {
namespace {

// Collects violations; the status is INVALID_ARGUMENT with all of them.
class Findings {
 public:
  void in_range(const char* field, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      add(field, "must be between " + text(low) + " and " + text(high) + ", got " + text(value));
    }
  }
  void add(std::string field, std::string what) {
    violations_.push_back({std::move(field), std::move(what)});
  }

  base::Status status() && {
    if (violations_.empty()) return {};
    base::Status out = base::invalid_argument(
        "VALUE_OUT_OF_RANGE", violations_[0].field + " " + violations_[0].description);
    for (auto& v : violations_)
      out = std::move(out).with_violation(std::move(v.field), std::move(v.description));
    return out;
  }

 private:
  static std::string text(double value) {
    std::string out = std::to_string(value);
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
    return out;
  }
  std::vector<base::FieldViolation> violations_;
};

void check_tokens(const Request& request, const RequestLimits& limits, Findings& findings) {
  if (request.prompt.empty()) findings.add("prompt", "has no tokens; give at least one");
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < limits.vocab_size) continue;
    findings.add("tokens.ids", "must be below the vocabulary's " +
                                   std::to_string(limits.vocab_size) + ", got " +
                                   std::to_string(token));
    break;
  }
}

void check_stops(const Request& request, const RequestLimits& limits, Findings& findings) {
  if (request.stop.size() > 16) {
    findings.add("stop", "takes at most 16 strings, got " + std::to_string(request.stop.size()));
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty() || stop.size() > 256) {
      findings.add("stop", "strings must have 1 to 256 bytes, got " + std::to_string(stop.size()));
    }
  }
  if (!request.stop.empty() && !limits.has_tokenizer) {
    findings.add("stop", "needs a tokenizer, and the model's folder has none; use stop_token_ids");
  }
}

}  // namespace

base::Status validate(const Request& request, const RequestLimits& limits) {
  Findings findings;
  check_tokens(request, limits, findings);
  check_stops(request, limits, findings);
  const Sampling& s = request.sampling;
  findings.in_range("temperature", s.temperature, 0, 2);
  if (!(s.top_p > 0))
    findings.add("top_p", "must be above 0 and at most 1, got " + std::to_string(s.top_p));
  findings.in_range("top_p", s.top_p, 0, 1);
  if (s.top_k < 0) findings.add("top_k", "must be ≥ 0 (0 is off), got " + std::to_string(s.top_k));
  findings.in_range("min_p", s.min_p, 0, 1);
  if (!(s.repetition_penalty > 0)) {
    findings.add("repetition_penalty",
                 "must be above 0 and at most 2, got " + std::to_string(s.repetition_penalty));
  }
  findings.in_range("repetition_penalty", s.repetition_penalty, 0, 2);
  findings.in_range("presence_penalty", s.presence_penalty, -2, 2);
  findings.in_range("frequency_penalty", s.frequency_penalty, -2, 2);
  if (request.top_logprobs) findings.in_range("logprobs", *request.top_logprobs, 0, 20);
  if (request.max_tokens < 0 || (request.max_tokens == 0 && !request.echo)) {
    findings.add("max_tokens",
                 "must be ≥ 1, or 0 with echo, got " + std::to_string(request.max_tokens));
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    findings.add("min_tokens",
                 "must be between 0 and max_tokens, got " + std::to_string(request.min_tokens));
  }
  if (request.dex_lambda_scale)
    findings.in_range("dex_lambda_scale", *request.dex_lambda_scale, 0, 1);
  if (!request.attention_parts.empty() && request.attention_parts.size() != request.prompt.size()) {
    findings.add("attention_parts", "must name a part for each of the prompt's " +
                                        std::to_string(request.prompt.size()) + " tokens, got " +
                                        std::to_string(request.attention_parts.size()));
  }
  findings.in_range("timeout_seconds", static_cast<double>(request.timeout_ms) / 1000, 0.001,
                    static_cast<double>(limits.longest_timeout_ms) / 1000);
  DEX_RETURN_IF_ERROR(std::move(findings).status());

  const int64_t total = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (total > limits.context_tokens) {
    return base::invalid_argument(
        "CONTEXT_LENGTH_EXCEEDED",
        "the model's context is " + std::to_string(limits.context_tokens) +
            " tokens, the request needs " + std::to_string(total) + ": " +
            std::to_string(request.prompt.size()) + " in the prompt and max_tokens " +
            std::to_string(request.max_tokens));
  }
  if (total > limits.cache_tokens) {
    return base::invalid_argument("CONTEXT_LENGTH_EXCEEDED",
                                  "the engine's KV cache holds " +
                                      std::to_string(limits.cache_tokens) +
                                      " tokens, the request needs " + std::to_string(total) +
                                      "; start the engine with a larger one");
  }
  return {};
}

}  // namespace dex::serve
