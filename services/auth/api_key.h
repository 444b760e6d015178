#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "services/base/random.h"

namespace dex::auth {

// API keys as text: `dex_<43 base62><6 checksum>` (api.md §1). The 43 characters are 32 random
// bytes; the checksum is for whoever meets a key elsewhere: a mistyped one is refused without a
// look-up, and a leak can be scanned for. Pure; a key is a secret, so nothing here puts one into a
// message.

// A new one. `random` must be good enough for secrets outside tests.
std::string make_api_key(base::RandomSource& random);

// Whether the text has the form, checksum included. Says nothing of whether anybody issued it.
bool is_api_key(std::string_view text);

// What is stored in its place: SHA-256 in lower-case hex. A slow hash would buy nothing for 256
// random bits.
std::string api_key_sha256(std::string_view key);

// What a list shows of a key, so that its owner knows it again: "dex_" and the first 6 characters.
std::string api_key_prefix(std::string_view key);

// The token of "Bearer <token>", the scheme in any case (RFC 9110 §11.1); nullopt: another scheme,
// or none.
std::optional<std::string_view> bearer_token(std::string_view authorization);

// Whether two texts are equal, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace dex::auth
