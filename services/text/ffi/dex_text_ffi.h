#pragma once

#include <stddef.h>
#include <stdint.h>

// C face of the Rust crate beside this file (tokenizers, minijinja, characters). Only services/text
// includes it.
//
// Every function returns 0, or a code with a message in `error`: 1 the input is at fault, 2 a panic
// was caught and the handle should not be used again. Nothing unwinds across this border, in either
// direction: sinks must not throw. Text is UTF-8 and read during the call only. Handles may be used
// by several threads at once; closing one needs that no other call is in it.

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const uint8_t* data;  // may be null if size is 0
  size_t size;
} DexText;

// Receives bytes; they are valid only inside the callback.
typedef struct {
  void* context;
  void (*write)(void* context, const uint8_t* data, size_t size);
} DexSink;

// Receives token ids and, for each, the byte of the text where it starts.
typedef struct {
  void* context;
  void (*write)(void* context, const uint32_t* ids, const uint32_t* starts, size_t count);
} DexIdSink;

typedef struct DexTokenizer DexTokenizer;
typedef struct DexTemplate DexTemplate;

typedef struct {
  uint32_t vocab_size;            // every id is below it
  uint32_t strip_leading_spaces;  // spaces that decoding takes off the front of a text
} DexTokenizerInfo;

// `json` is the content of tokenizer.json. On success *out belongs to the caller, who closes it.
int dex_tokenizer_open(DexText json, DexTokenizer** out, DexTokenizerInfo* info, DexSink error);
void dex_tokenizer_close(DexTokenizer* tokenizer);  // null is fine
// Without `want_starts` it is quicker and every start is 0.
int dex_tokenizer_encode(const DexTokenizer* tokenizer, DexText text, int add_special_tokens,
                         int want_starts, DexIdSink out, DexSink error);
int dex_tokenizer_decode(const DexTokenizer* tokenizer, const uint32_t* ids, size_t count,
                         int skip_special_tokens, DexSink out, DexSink error);
// The bytes that a token stands for; they live as long as the handle. 1 if there is no such id.
int dex_tokenizer_token(const DexTokenizer* tokenizer, uint32_t id, DexText* out, int* special);
int dex_tokenizer_id(const DexTokenizer* tokenizer, DexText token, uint32_t* id, DexSink error);

typedef struct {
  DexText role;
  DexText content;
  DexText name;  // empty: absent
} DexMessage;

typedef struct {
  DexText key;
  DexText value;
} DexPair;

// `source` is a chat template of Hugging Face's kind (Jinja2).
int dex_template_open(DexText source, DexTemplate** out, DexSink error);
void dex_template_close(DexTemplate* chat_template);  // null is fine
// `special_tokens`: "bos_token" → "<s>" and so on, visible to the template as variables.
int dex_template_render(const DexTemplate* chat_template, const DexMessage* messages, size_t count,
                        const DexPair* special_tokens, size_t special_count,
                        int add_generation_prompt, DexSink out, DexSink error);

// Lower case of all of Unicode, the final sigma included.
int dex_text_lowercase(DexText text, DexSink out, DexSink error);
// For each byte of `text` the kind of the character that it belongs to: 0 other, 1 a letter that
// has a lower case of its own, 2 punctuation (ASCII's, and Unicode's categories P*), 3 white space
// or control.
int dex_text_kinds(DexText text, DexSink out, DexSink error);

#ifdef __cplusplus
}
#endif
