#include "services/data/text_scan.h"

#include <array>
#include <cstdint>

namespace dex::data {

namespace {

constexpr std::string_view kSpecialTokens[] = {
    "<s>",   "</s>",   "<unk>",   "<pad>",           "<bos>",
    "<eos>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>"};

struct SecretShape {
  std::string_view prefix;
  size_t least_letters;  // of [A-Za-z0-9_-] after it
  std::string_view what;
};

constexpr SecretShape kSecrets[] = {
    {"AKIA", 16, "AWS access key"},
    {"ASIA", 16, "AWS temporary access key"},
    {"AIza", 35, "Google API key"},
    {"ghp_", 36, "GitHub token"},
    {"gho_", 36, "GitHub token"},
    {"ghs_", 36, "GitHub token"},
    {"github_pat_", 40, "GitHub token"},
    {"glpat-", 20, "GitLab token"},
    {"hf_", 34, "Hugging Face token"},
    {"sk-", 32, "API key"},
    {"sk_live_", 20, "Stripe key"},
    {"xoxb-", 20, "Slack token"},
    {"xoxp-", 20, "Slack token"},
    {"npm_", 36, "npm token"},
    {"dex_", 49, "DEX API key"},
    {"-----BEGIN RSA PRIVATE KEY-----", 0, "private key"},
    {"-----BEGIN EC PRIVATE KEY-----", 0, "private key"},
    {"-----BEGIN OPENSSH PRIVATE KEY-----", 0, "private key"},
    {"-----BEGIN PRIVATE KEY-----", 0, "private key"},
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Bytes at which any mark can begin; the scan looks no further at all others.
constexpr std::array<bool, 256> interesting_bytes() {
  std::array<bool, 256> table{};
  for (const auto& token : kSpecialTokens) table[static_cast<uint8_t>(token[0])] = true;
  for (const auto& secret : kSecrets) table[static_cast<uint8_t>(secret.prefix[0])] = true;
  table[0xEF] = true;
  return table;
}

size_t special_token_size(std::string_view rest) {
  for (const std::string_view token : kSpecialTokens) {
    if (rest.starts_with(token)) return token.size();
  }
  if (!rest.starts_with("<|")) return 0;
  size_t end = 2;
  while (end < rest.size() && end < 40 && is_word(rest[end])) ++end;
  return end > 2 && rest.substr(end).starts_with("|>") ? end + 2 : 0;
}

const SecretShape* secret_at(std::string_view text, size_t at, size_t* size) {
  if (at > 0 && is_word(text[at - 1]) && text[at] != '-') return nullptr;  // inside a longer word
  for (const SecretShape& secret : kSecrets) {
    if (!text.substr(at).starts_with(secret.prefix)) continue;
    size_t end = at + secret.prefix.size();
    if (secret.least_letters > 0) {
      while (end < text.size() && is_word(text[end])) ++end;
    }
    *size = end - at;
    if (*size >= secret.prefix.size() + secret.least_letters) return &secret;
  }
  return nullptr;
}

}  // namespace

void scan_text(std::string_view text, const std::function<void(const TextMark&)>& report) {
  static constexpr auto kInteresting = interesting_bytes();
  bool special = false, secret = false, replacement = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!kInteresting[static_cast<uint8_t>(text[at])]) continue;
    if (!replacement && text.substr(at).starts_with("\xEF\xBF\xBD")) {
      replacement = true;
      report({"replacement_character", at, 3, ""});
      continue;
    }
    if (const size_t size = special ? 0 : special_token_size(text.substr(at)); size > 0) {
      special = true;
      report({"special_token_in_text", at, size, ""});
      continue;
    }
    size_t size = 0;
    if (const SecretShape* shape = secret ? nullptr : secret_at(text, at, &size)) {
      secret = true;
      report({"secret_like_text", at, size, shape->what});
    }
  }
}

}  // namespace dex::data
