#include "services/text/tokenizer.h"

#include <algorithm>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "services/text/ffi_border.h"

namespace dex::text {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokenizerBytes = 64 << 20;  // Gemma's 256 k entries take 33 MB
constexpr size_t kMaxTextBytes = 64 << 20;

void append_ids(void* context, const uint32_t* ids, const uint32_t* starts, size_t count) {
  auto& out = *static_cast<Tokenizer::Encoding*>(context);
  out.ids.assign(ids, ids + count);
  out.starts.assign(starts, starts + count);
}

}  // namespace

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const fs::path& path) {
  const bool is_file = path.filename() == "tokenizer.json";
  const fs::path file = is_file ? path : path / "tokenizer.json";
  DEX_ASSIGN_OR_RETURN(const std::string json, base::read_file(file, kMaxTokenizerBytes));
  DEX_ASSIGN_OR_RETURN(const ModelTextConfig config, ModelTextConfig::load(file.parent_path()));
  auto tokenizer = from_json(json, config);
  if (!tokenizer.ok()) return tokenizer.status().with_prefix(file.string());
  return tokenizer;
}

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json,
                                                              const ModelTextConfig& config) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  DexTokenizerInfo info{};
  std::string error;
  if (dex_tokenizer_open(detail::borrow(json), &tokenizer->handle_, &info, detail::into(error)) !=
      0) {
    return base::invalid_argument("INVALID_FIELD", "not a usable tokenizer: " + error);
  }
  tokenizer->vocab_size_ = static_cast<int32_t>(info.vocab_size);
  tokenizer->strip_leading_spaces_ = static_cast<int32_t>(info.strip_leading_spaces);
  tokenizer->sha256_ = base::sha256_hex(json);
  DEX_RETURN_IF_ERROR(tokenizer->read_special_tokens(config));
  return tokenizer;
}

Tokenizer::~Tokenizer() {
  dex_tokenizer_close(handle_);
}

base::Status Tokenizer::read_special_tokens(const ModelTextConfig& config) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto found = config.tokens.find(name);
    if (found == config.tokens.end()) continue;
    const auto id = token_to_id(found->second);
    if (!id) {
      return base::invalid_argument("INVALID_FIELD", std::string(name) + " is \"" + found->second +
                                                         "\", which the tokenizer does not know");
    }
    special_ids_[name] = *id;
  }
  if (const auto eos = eos_id()) stop_ids_.push_back(*eos);
  for (const int32_t id : config.generation_eos_ids) {
    if (contains(id) && !is_stop(id)) stop_ids_.push_back(id);
  }
  DEX_ASSIGN_OR_RETURN(const std::vector<int32_t> empty, encode("", true));
  adds_bos_ = bos_id() && !empty.empty() && empty.front() == *bos_id();
  return {};
}

base::Result<Tokenizer::Encoding> Tokenizer::run(std::string_view text, bool add_special_tokens,
                                                 bool want_starts) const {
  if (text.size() > kMaxTextBytes) {
    return base::invalid_argument(
        "TOO_LARGE", "the text has " + std::to_string(text.size()) + " bytes, at most " +
                         std::to_string(kMaxTextBytes) + " are tokenized at once");
  }
  Encoding encoding;
  std::string error;
  const int code = dex_tokenizer_encode(handle_, detail::borrow(text), add_special_tokens,
                                        want_starts, {&encoding, append_ids}, detail::into(error));
  if (code != 0) return base::invalid_argument("INVALID_FIELD", "the tokenizer failed: " + error);
  return encoding;
}

base::Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                                     bool add_special_tokens) const {
  DEX_ASSIGN_OR_RETURN(Encoding encoding, run(text, add_special_tokens, false));
  return std::move(encoding.ids);
}

base::Result<Tokenizer::Encoding> Tokenizer::encode_with_starts(std::string_view text) const {
  return run(text, false, true);
}

base::Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                            bool skip_special_tokens) const {
  std::string text, error;
  // A negative id becomes a huge one, which is outside every vocabulary.
  const int code =
      dex_tokenizer_decode(handle_, reinterpret_cast<const uint32_t*>(ids.data()), ids.size(),
                           skip_special_tokens, detail::into(text), detail::into(error));
  if (code != 0) return base::invalid_argument("VALUE_OUT_OF_RANGE", error);
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  DexText bytes{};
  int special = 0;
  if (dex_tokenizer_token(handle_, static_cast<uint32_t>(id), &bytes, &special) != 0) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

bool Tokenizer::is_special(int32_t id) const {
  DexText bytes{};
  int special = 0;
  return dex_tokenizer_token(handle_, static_cast<uint32_t>(id), &bytes, &special) == 0 &&
         special != 0;
}

bool Tokenizer::contains(int32_t id) const {
  DexText bytes{};
  int special = 0;
  return dex_tokenizer_token(handle_, static_cast<uint32_t>(id), &bytes, &special) == 0;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  uint32_t id = 0;
  std::string ignored;
  if (dex_tokenizer_id(handle_, detail::borrow(token), &id, detail::into(ignored)) != 0)
    return std::nullopt;
  return static_cast<int32_t>(id);
}

bool Tokenizer::is_stop(int32_t id) const {
  return std::ranges::find(stop_ids_, id) != stop_ids_.end();
}

std::optional<int32_t> Tokenizer::special_id(const std::string& name) const {
  const auto found = special_ids_.find(name);
  if (found == special_ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace dex::text
