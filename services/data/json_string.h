#pragma once

#include <functional>
#include <string>
#include <string_view>

// Private to this room: the inside of JSON strings.
namespace dex::data {

// Decodes the escapes of a syntactically sound string (without its quotes). A surrogate without its
// partner becomes U+FFFD and is reported with its position, if somebody asks.
std::string decode_json_string(std::string_view inside,
                               const std::function<void(size_t)>& on_lone_surrogate = nullptr);

// The value of four hex digits, or −1.
int hex4(std::string_view digits);

}  // namespace dex::data
