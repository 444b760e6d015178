// Weights and adapters from elsewhere: the file's header, and the tensors that it then promises.
#include "worker/model/safetensors.h"

#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

// A file of this header over so many bytes of data.
std::string file_of(const std::string& header, size_t data) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8)
    bytes += static_cast<char>(uint64_t{header.size()} >> shift & 0xff);
  return bytes + header + std::string(data, '\1');
}

}  // namespace

Corpus corpus() {
  return {
      {file_of(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
       file_of(
           R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})",
           16),
       file_of(
           R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"y":{"dtype":"F16","shape":[1],"data_offsets":[3,5]}})",
           5),
       file_of(R"({"empty":{"dtype":"F64","shape":[0,9],"data_offsets":[0,0]}})", 0),
       file_of("{}", 0),
       // No byte, and strides that no 64 bits hold.
       file_of(
           R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}})",
           0),
       file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
       file_of(
           R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})",
           8),
       std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}", 10), "1234567"},
      {"\"F32\"", "\"F16\"", "\"BF16\"", "\"F64\"", "\"I8\"", "\"U8\"", "\"BOOL\"", "\"F8_E4M3\"",
       "\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "[0,0]", "[]", "  "}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  using dex::model::Safetensors;
  const auto path = file_with(view(data, size), "model.safetensors");
  parse([&] {
    const Safetensors file = Safetensors::open(path, Safetensors::Access::kRead);
    for (const auto& [name, info] : file.tensors()) {
      const at::Tensor tensor = file.tensor(name);
      require(tensor.nbytes() == info.end - info.begin, "as many bytes as the header says");
      try {
        dex::model::require_finite(tensor, name);
      } catch (const std::runtime_error&) {  // NaN, which is said so
      }
    }
    require(file.sha256().size() == 64, "a hash of the file");
  });
  return 0;
}
