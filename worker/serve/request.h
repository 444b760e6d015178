#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/status.h"

namespace dex::serve {

// How the next token is chosen (api.md §6).
struct Sampling {
  double temperature = 1;  // 0: the likeliest
  double top_p = 1;
  int32_t top_k = 0;  // 0: off
  double min_p = 0;
  double repetition_penalty = 1;  // over prompt and completion, as in transformers
  double presence_penalty = 0;    // these two over the completion only, as OpenAI defines them
  double frequency_penalty = 0;
  uint64_t seed = 0;
};

// One completion of one prompt, in token ids.
struct Request {
  std::vector<int32_t> prompt;
  int32_t max_tokens = 16;  // 0 with echo: only the prompt's log-probabilities
  int32_t min_tokens = 0;   // no end of sequence before
  Sampling sampling;
  std::vector<std::string> stop;        // not in the text
  std::vector<int32_t> stop_token_ids;  // besides the model's own
  bool ignore_eos = false;
  std::optional<int32_t> top_logprobs;  // set: log-probabilities, and of this many of the likeliest
  bool echo = false;                    // the prompt comes first
  // With echo and log-probabilities: only the entries of prompt tokens from here on. What comes
  // before may then be taken from the KV cache.
  int32_t echo_from = 0;
  // For each token of the prompt, which part it belongs to (small numbers from 0): the outcome then
  // says what the attention of the prompt's last token falls on. Empty: not measured.
  std::vector<uint8_t> attention_parts;
  // 0–1, times every λ of the adapter's branch; 0: without the branch. Nothing: 1, of whatever
  // answers. Needs an adapter that has a branch (engine.h).
  std::optional<double> dex_lambda_scale;
  int64_t timeout_ms = 600'000;  // from submission

  [[nodiscard]] double lambda_scale() const { return dex_lambda_scale.value_or(1); }
};

// What a model allows.
struct RequestLimits {
  int32_t context_tokens = 0;
  int32_t cache_tokens = 0;  // of the KV cache, in all
  int32_t vocab_size = 0;
  bool has_tokenizer = false;
  int64_t longest_timeout_ms = 600'000;  // api.md §6
};

// OK, or everything that is out of the limits of api.md §6, named by the API's fields; a request
// that is too long is CONTEXT_LENGTH_EXCEEDED, never cut.
base::Status validate(const Request& request, const RequestLimits& limits);

// fp32 log-softmax of the raw logits.
struct TokenLogprob {
  int32_t token = 0;
  std::string text;  // "bytes:\xNN…" when it is not whole UTF-8; empty without a tokenizer
  std::optional<float> logprob;  // nothing: the first token of the prompt
  struct Top {
    int32_t token = 0;
    std::string text;
    float logprob = 0;
  };
  std::vector<Top> top;  // the likeliest first
};

// What a step adds to a reply.
struct Delta {
  std::string text;  // whole characters; what could become a stop string is held back
  std::vector<int32_t> tokens;
  std::vector<TokenLogprob> logprobs;
};

enum class FinishReason { kStop, kLength, kCancelled };

// How a request ended: with a reason, or with an error.
struct Outcome {
  base::Status error;  // OK: the rest holds
  FinishReason reason = FinishReason::kStop;
  std::string stop_reason;  // the stop string, or the id of the stop token
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, taken from the KV cache
  // By part of Request::attention_parts, adding to 1: mean over layers and heads (method.md §9.2).
  // Empty: not asked for.
  std::vector<double> attention;
  bool attention_magnitudes = false;  // some weights are below 0: shares of |M|, renormalised
  double queue_ms = 0;                // until its first step
  double first_token_ms = 0;          // from submission
  double total_ms = 0;
};

// Gets what a request yields. Called from the engine's step thread, which waits meanwhile: hand
// over and return. deltas, then done once; nothing after it.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_delta(Delta delta) = 0;
  virtual void on_done(Outcome outcome) = 0;
};

}  // namespace dex::serve
