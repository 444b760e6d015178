#include "worker/serve/text_output.h"

#include <utility>

namespace dex::serve {

TextOutput::TextOutput(const text::Tokenizer* tokenizer, const Request& request)
    : tokenizer_(tokenizer), matcher_(request.stop) {
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(*tokenizer);
  for (const int32_t token : request.prompt) {
    std::string piece = detokenizer_->push(token);
    if (request.echo) prompt_text_ += piece;
  }
}

std::string TextOutput::prompt_text() {
  return std::exchange(prompt_text_, {});
}

std::string TextOutput::push(int32_t token) {
  return detokenizer_ ? matcher_.push(detokenizer_->push(token)) : std::string();
}

std::string TextOutput::finish() {
  if (!detokenizer_) return {};
  std::string rest = matcher_.push(detokenizer_->finish());
  return rest + matcher_.finish();
}

TokenLogprob TextOutput::entry(int32_t token, std::optional<float> logprob,
                               std::span<const std::pair<int32_t, float>> top) const {
  TokenLogprob out;
  out.token = token;
  out.logprob = logprob;
  std::vector<int32_t> ids = {token};
  for (const auto& [id, value] : top) {
    out.top.push_back({id, {}, value});
    if (id != token) ids.push_back(id);
  }
  if (tokenizer_ == nullptr) return out;
  const auto texts = text::distinct_token_texts(*tokenizer_, ids);
  out.text = texts.front();
  size_t next = 1;
  for (TokenLogprob::Top& entry : out.top)
    entry.text = entry.token == token ? out.text : texts[next++];
  return out;
}

}  // namespace dex::serve
