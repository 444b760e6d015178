#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dex::model {

// Where one tensor lies in a file; begin and end count from the start of the data.
struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// One safetensors file, checked by every rule of jobs.md §10 before anything is allocated: size,
// header length, UTF-8, duplicate keys, known dtypes, shape × size by checked multiplication, no
// hole, no overlap, no trailing byte. Throws "[safetensors] <file>: …" naming tensor, expected and
// found. Copies share the file's bytes.
class Safetensors {
 public:
  enum class Access {
    kMap,  // the file is mapped; tensors are views of the page cache. For base models, which nobody
           // rewrites
    kRead,  // the bytes are read once into memory: later changes of the file have no effect. For
            // adapters
  };
  // Refuses what is not a regular file, what everybody may write to, and what is larger than
  // `max_bytes`. kRead follows no symbolic link.
  static Safetensors open(const std::filesystem::path& path, Access access,
                          uint64_t max_bytes = uint64_t{1} << 46);

  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;
  [[nodiscard]] bool has(const std::string& name) const;

  // A view of the file's bytes that keeps them alive by itself. Read only: writing into a mapped
  // tensor is a crash. (A tensor that lies unaligned in the file comes as a copy.) Throws when
  // there is no such tensor.
  [[nodiscard]] at::Tensor tensor(const std::string& name) const;

  // Where the file is mapped; empty with kRead.
  [[nodiscard]] std::span<const char> mapping() const;

  // Lower-case hex SHA-256 of the whole file, over the same bytes that tensor() shows.
  [[nodiscard]] std::string sha256() const;

 private:
  struct File;
  explicit Safetensors(std::shared_ptr<const File> file);
  std::shared_ptr<const File> file_;
};

// Throws "[safetensors] <name>: …" when a floating-point tensor holds NaN or Inf, with the first
// bad index.
void require_finite(const at::Tensor& tensor, const std::string& name);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes a file that every safetensors reader takes, under a temporary name, synced and renamed.
// The bytes depend only on the arguments: tensors go in order of element size (largest first), then
// name. Throws on I/O errors (disk full included) and leaves nothing behind then.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// The weight files of a model's directory: model.safetensors, or the shards of
// model.safetensors.index.json. Every tensor of the index must be in the file that the index names,
// and no file may hold more.
class WeightFiles {
 public:
  static WeightFiles open(const std::filesystem::path& dir);

  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;
  [[nodiscard]] at::Tensor tensor(const std::string& name) const;
  [[nodiscard]] std::vector<std::span<const char>> mappings() const;  // of all files
  // `base_weights_sha256` of architecture.md §6: of the file, or of the lines "<sha256>  <file>\n"
  // in name order.
  [[nodiscard]] std::string sha256() const;

 private:
  std::filesystem::path dir_;
  std::map<std::string, Safetensors> files_;    // by file name
  std::map<std::string, std::string> file_of_;  // tensor → file name
};

}  // namespace dex::model
