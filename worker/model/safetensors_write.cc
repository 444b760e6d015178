#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "worker/model/safetensors.h"
#include "worker/model/safetensors_bytes.h"
#include "worker/model/safetensors_header.h"

namespace dex::model {

namespace {

constexpr uint64_t kHeaderAlignment = 8;

// Largest elements first, so that with a padded header every tensor lies aligned; then by name.
NamedTensors in_file_order(const NamedTensors& tensors, const std::string& source) {
  NamedTensors order = tensors;
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto size_a = a.second.element_size(), size_b = b.second.element_size();
    return size_a != size_b ? size_a > size_b : a.first < b.first;
  });
  for (auto& [name, tensor] : order) {
    if (dtype_name(tensor.scalar_type()) == nullptr) {
      fail_safetensors(source, "tensor \"" + name + "\": type " +
                                   c10::toString(tensor.scalar_type()) +
                                   " has no name in safetensors");
    }
    tensor = tensor.detach().cpu().contiguous();
  }
  return order;
}

std::string header_bytes(const NamedTensors& order,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t begin = 0;
  for (const auto& [name, tensor] : order) {
    const uint64_t end = begin + tensor.nbytes();
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())},
                    {"shape", std::vector<int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
                    {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string json = header.dump();
  json.append((kHeaderAlignment - json.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string bytes(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return bytes + json;
}

void require(const base::Status& status, const std::string& source) {
  if (!status.ok()) fail_safetensors(source, status.message());
}

}  // namespace

void stream_safetensors(const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& source,
                        const std::function<void(std::string_view)>& sink) {
  const NamedTensors order = in_file_order(tensors, source);
  sink(header_bytes(order, metadata));
  for (const auto& [name, tensor] : order) {
    sink({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string source = path.string();
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  auto writer = base::FileWriter::create(temporary);
  require(writer.status(), source);
  stream_safetensors(tensors, metadata, source,
                     [&](std::string_view bytes) { require(writer->append(bytes), source); });
  require(writer->close(), source);
  const base::Status renamed = base::rename_durably(temporary, path);
  if (!renamed.ok()) std::filesystem::remove(temporary, ignored);
  require(renamed, source);
}

}  // namespace dex::model
