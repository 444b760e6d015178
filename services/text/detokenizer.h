#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/text/tokenizer.h"
#include "services/text/utf8.h"

namespace dex::text {

// Turns a growing list of ids into text that is correct UTF-8 at every step. All pieces together
// equal Tokenizer::decode of the whole list (for models with byte fallback: unless bytes are
// broken). Not thread-safe; one a generation.
class Detokenizer {
 public:
  struct Options {
    bool skip_special_tokens = true;
  };
  // `tokenizer` outlives this object.
  Detokenizer(const Tokenizer& tokenizer, Options options);
  explicit Detokenizer(const Tokenizer& tokenizer) : Detokenizer(tokenizer, Options()) {}

  // The text that this id completes; empty while a character is unfinished. Ids outside the
  // vocabulary (a padded embedding can yield them) give nothing.
  std::string push(int32_t id);
  // U+FFFD if the last character was never finished, else nothing. The object then starts anew.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  Options options_;
  Utf8Stream stream_;
  int32_t spaces_to_strip_;
};

// How a log-probability entry names a token (api.md §6): its text, or `bytes:\xNN…` if that is not
// UTF-8.
std::string token_text(const Tokenizer& tokenizer, int32_t id);
// The names of one entry's candidates, all different: a text that an earlier id already has becomes
// `token_id:<n>`. Put the chosen token first.
std::vector<std::string> distinct_token_texts(const Tokenizer& tokenizer,
                                              std::span<const int32_t> ids);

}  // namespace dex::text
