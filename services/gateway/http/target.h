#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/base/status.h"

namespace dex::gateway::http {

// What the first line of a request asks for.
struct Target {
  std::string path;                                        // as sent
  std::vector<std::string> segments;                       // decoded
  std::vector<std::pair<std::string, std::string>> query;  // decoded; "a&b=1" → {a, ""}, {b, 1}
};

// "/v1/models/ft%3Asmol?limit=3", or the same behind http://host. INVALID_ARGUMENT `INVALID_FIELD`
// for anything else: bad percent-encoding, control characters, text that is not UTF-8, segments `.`
// and `..` (clients resolve those; nothing here is a file's path). Pure.
base::Result<Target> parse_target(std::string_view target);

// Percent-decoding as above; in a query '+' is a space.
base::Result<std::string> percent_decode(std::string_view text, bool plus_is_space);

// Whether the bytes are UTF-8 without overlong forms and surrogates.
bool is_utf8(std::string_view bytes);

}  // namespace dex::gateway::http
