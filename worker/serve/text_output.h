#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/text/detokenizer.h"
#include "worker/serve/request.h"
#include "worker/serve/sampler.h"
#include "worker/serve/stop_matcher.h"

namespace dex::serve {

// Turns one completion's tokens into what its listener gets: whole characters, without stop
// strings, and named log-probabilities. Not thread-safe; one a completion.
class TextOutput {
 public:
  // `tokenizer` may be null: then there are ids only. It outlives this object. The prompt comes
  // first in the text with `request.echo`; else it only sets the scene, so that a first word keeps
  // its space.
  TextOutput(const text::Tokenizer* tokenizer, const Request& request);

  // The prompt's text; with echo, once, before the first token.
  std::string prompt_text();
  // The text that a token completes. After stopped() there is no more.
  std::string push(int32_t token);
  // What is left when the completion ends for another reason than a stop string.
  std::string finish();
  [[nodiscard]] bool stopped() const { return !matcher_.found().empty(); }
  [[nodiscard]] const std::string& stop_string() const { return matcher_.found(); }

  // An entry with texts: the chosen token first, then `top`, equal texts told apart.
  [[nodiscard]] TokenLogprob entry(int32_t token, std::optional<float> logprob,
                                   std::span<const std::pair<int32_t, float>> top) const;

 private:
  const text::Tokenizer* tokenizer_;
  std::optional<text::Detokenizer> detokenizer_;
  std::string prompt_text_;
  StopMatcher matcher_;
};

}  // namespace dex::serve
