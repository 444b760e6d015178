#include "worker/train/tensor_file.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace dex::train {
namespace {

// 8 bytes of length, then JSON padded with spaces to a multiple of 8, as the format wants it.
std::string header(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  nlohmann::ordered_json entries;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      throw std::runtime_error("[write_tensors] " + name + " must be contiguous fp32");
    }
    const int64_t end = offset + tensor.numel() * 4;
    entries[name] = {
        {"dtype", "F32"}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = entries.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  for (int byte = 0; byte < 8; ++byte)
    out[byte] = static_cast<char>(json.size() >> (8 * byte) & 0xff);
  return out + json;
}

}  // namespace

base::Status write_tensors(base::AtomicDirectory& directory, const std::string& name,
                           const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  DEX_ASSIGN_OR_RETURN(auto writer, directory.open(name));
  DEX_RETURN_IF_ERROR(writer.append(header(tensors)));
  for (const auto& [key, tensor] : tensors) {
    const auto bytes = static_cast<size_t>(tensor.numel()) * 4;
    DEX_RETURN_IF_ERROR(
        writer.append({reinterpret_cast<const char*>(tensor.const_data_ptr<float>()), bytes}));
  }
  return directory.finish(std::move(writer));
}

}  // namespace dex::train
