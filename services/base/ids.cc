#include "services/base/ids.h"

#include <algorithm>
#include <array>

namespace dex::base {

namespace {

constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr size_t kLength = 26;
constexpr size_t kTimeLength = 10;

// 130 bits of text hold 128: the first character is at most '7'.
std::string encode(int64_t ms, uint16_t high, uint64_t low) {
  std::string text(kLength, '0');
  auto time = static_cast<uint64_t>(ms);
  for (size_t i = kTimeLength; i-- > 0; time >>= 5) text[i] = kAlphabet[time & 31];
  for (size_t i = kLength; i-- > kTimeLength;) {
    text[i] = kAlphabet[low & 31];
    low = (low >> 5) | (static_cast<uint64_t>(high & 31) << 59);
    high >>= 5;
  }
  return text;
}

}  // namespace

UlidGenerator::UlidGenerator(const Clock& clock, RandomSource& random)
    : clock_(clock), random_(random) {}

std::string UlidGenerator::next() {
  const std::lock_guard lock(mutex_);
  const int64_t now = clock_.now_ms();
  if (now > last_ms_) {
    last_ms_ = now;
    std::array<uint8_t, 10> bytes{};
    random_.fill(bytes);
    // The top bit stays free, so that counting up within a millisecond cannot overflow.
    high_ = static_cast<uint16_t>((bytes[0] & 0x7f) << 8 | bytes[1]);
    low_ = 0;
    for (size_t i = 2; i < bytes.size(); ++i) low_ = low_ << 8 | bytes[i];
  } else if (++low_ == 0) {
    ++high_;
  }
  return encode(last_ms_, high_, low_);
}

std::string UlidGenerator::make(std::string_view prefix) {
  return std::string(prefix) + next();
}

bool is_ulid(std::string_view text) {
  return text.size() == kLength && text[0] <= '7' && std::ranges::all_of(text, [](char c) {
           return kAlphabet.find(c) != std::string_view::npos;
         });
}

bool is_id(std::string_view id, std::string_view prefix) {
  return id.starts_with(prefix) && is_ulid(id.substr(prefix.size()));
}

bool is_model_name(std::string_view name) {
  const auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 64 && alphanumeric(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return alphanumeric(c) || c == '.' || c == '-'; });
}

int64_t ulid_time_ms(std::string_view ulid) {
  int64_t ms = 0;
  for (const char c : ulid.substr(0, kTimeLength)) {
    ms = ms << 5 | static_cast<int64_t>(kAlphabet.find(c));
  }
  return ms;
}

}  // namespace dex::base
