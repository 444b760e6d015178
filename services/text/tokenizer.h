#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/text/special_tokens.h"

struct DexTokenizer;

namespace dex::text {

// A model's tokenizer: Hugging Face's tokenizer.json, run by the `tokenizers` crate. Thread-safe;
// encode and decode never touch the disk. Special tokens written out in a text ("<|im_end|>")
// become their ids, as they do in transformers.
class Tokenizer {
 public:
  struct Encoding {
    std::vector<int32_t> ids;
    std::vector<uint32_t> starts;  // for each id, the byte of the text where it begins; rises
  };

  // A model's folder, or the path of a tokenizer.json whose neighbours are read too. Blocks on the
  // disk. A file that is missing, too large (64 MiB), too deep or not a usable tokenizer is an
  // error that names it.
  static base::Result<std::unique_ptr<Tokenizer>> load(
      const std::filesystem::path& folder_or_tokenizer_json);
  // The same from memory. Tokens that `config` names and `json` lacks are an error.
  static base::Result<std::unique_ptr<Tokenizer>> from_json(std::string_view json,
                                                            const ModelTextConfig& config);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `add_special_tokens` runs the post-processor, which for some models puts BOS in front. Rendered
  // chats hold their special tokens already: pass false. At most 64 MiB of valid UTF-8.
  base::Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens) const;
  base::Result<Encoding> encode_with_starts(std::string_view text) const;  // adds no special tokens
  // An id outside the vocabulary is an error.
  base::Result<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The bytes that one token stands for, which need not be whole characters; empty for an unknown
  // id. Lives as long as this object.
  std::string_view token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  bool contains(int32_t id) const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  int32_t vocab_size() const { return vocab_size_; }  // every id is below it
  // Spaces that decode() takes off the front of a text (SentencePiece models: 1).
  int32_t strip_leading_spaces() const { return strip_leading_spaces_; }

  // "pad_token" and the like, as the model's folder names them.
  std::optional<int32_t> special_id(const std::string& name) const;
  std::optional<int32_t> bos_id() const { return special_id("bos_token"); }
  std::optional<int32_t> eos_id() const { return special_id("eos_token"); }
  // Ids that end a generation: eos and those of generation_config.json.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }
  bool is_stop(int32_t id) const;
  // encode(text, true) puts BOS in front.
  bool adds_bos() const { return adds_bos_; }
  const std::string& sha256() const { return sha256_; }  // of tokenizer.json

 private:
  Tokenizer() = default;
  base::Status read_special_tokens(const ModelTextConfig& config);
  base::Result<Encoding> run(std::string_view text, bool add_special_tokens,
                             bool want_starts) const;

  DexTokenizer* handle_ = nullptr;
  int32_t vocab_size_ = 0;
  int32_t strip_leading_spaces_ = 0;
  std::map<std::string, int32_t> special_ids_;  // "eos_token" → id
  std::vector<int32_t> stop_ids_;
  bool adds_bos_ = false;
  std::string sha256_;
};

}  // namespace dex::text
