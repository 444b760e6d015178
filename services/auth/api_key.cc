#include "services/auth/api_key.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "services/base/sha256.h"

namespace dex::auth {

namespace {

constexpr std::string_view kMark = "dex_";
constexpr std::string_view kDigits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kRandomBytes = 32;
constexpr size_t kBodyDigits = 43;  // 62^43 > 2^256
constexpr size_t kCheckDigits = 6;  // 62^6 > 2^32
constexpr size_t kShownDigits = 6;

// Long division of a big-endian number by 62, a digit at a time from the last.
std::string base62(std::array<uint8_t, kRandomBytes> number) {
  std::string digits(kBodyDigits, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    uint32_t rest = 0;
    for (uint8_t& byte : number) {
      const uint32_t part = rest << 8 | byte;
      byte = static_cast<uint8_t>(part / kDigits.size());
      rest = part % kDigits.size();
    }
    *digit = kDigits[rest];
  }
  return digits;
}

// Of mark and body: 32 bits of their SHA-256.
std::string checksum(std::string_view key) {
  uint64_t bits = std::stoull(base::sha256_hex(key).substr(0, 8), nullptr, 16);
  std::string digits(kCheckDigits, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    *digit = kDigits[bits % kDigits.size()];
    bits /= kDigits.size();
  }
  return digits;
}

}  // namespace

std::string make_api_key(base::RandomSource& random) {
  std::array<uint8_t, kRandomBytes> bytes{};
  random.fill(bytes);
  const std::string key = std::string(kMark) + base62(bytes);
  return key + checksum(key);
}

bool is_api_key(std::string_view text) {
  constexpr size_t kKey = kMark.size() + kBodyDigits;
  if (text.size() != kKey + kCheckDigits || !text.starts_with(kMark)) return false;
  const auto digits = text.substr(kMark.size());
  if (digits.find_first_not_of(kDigits) != std::string_view::npos) return false;
  return text.substr(kKey) == checksum(text.substr(0, kKey));
}

std::string api_key_sha256(std::string_view key) {
  return base::sha256_hex(key);
}

std::string api_key_prefix(std::string_view key) {
  return std::string(key.substr(0, kMark.size() + kShownDigits));
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (authorization.size() <= kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (lower(authorization[i]) != kScheme[i]) return std::nullopt;
  }
  auto token = authorization.substr(kScheme.size());
  token.remove_prefix(std::min(token.find_first_not_of(' '), token.size()));
  while (!token.empty() && token.back() == ' ') token.remove_suffix(1);
  if (token.empty()) return std::nullopt;
  return token;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // volatile: a compiler may not leave the loop once the answer is known.
  volatile unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    different = different | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return different == 0;
}

}  // namespace dex::auth
