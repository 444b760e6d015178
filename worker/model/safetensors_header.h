#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "worker/model/safetensors.h"

namespace dex::model {

inline constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
inline constexpr uint64_t kLengthBytes =
    8;  // the little-endian header length in front of the header

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses the JSON header and checks every rule of jobs.md §10 that it can break, given the number
// of bytes that follow it. Memory is bounded by the header's size. Throws "[safetensors] <source>:
// …".
SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& source);

// Checks the length field of a file of `file_bytes`. Throws likewise.
uint64_t checked_header_length(uint64_t length, uint64_t file_bytes, const std::string& source);

// "BF16" of kBFloat16; nullptr for types that are not stored.
const char* dtype_name(at::ScalarType type);

[[noreturn]] void fail_safetensors(const std::string& source, const std::string& what);

}  // namespace dex::model
