#include "worker/model/safetensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "services/base/fd.h"
#include "services/base/sha256.h"
#include "worker/kernels/check.h"
#include "worker/model/safetensors_header.h"

namespace dex::model {

// The bytes of one file, mapped or read, and what its header says.
struct Safetensors::File {
  std::filesystem::path path;
  SafetensorsHeader header;
  char* bytes = nullptr;
  uint64_t size = 0;
  uint64_t data = 0;  // where the tensors' data starts
  bool mapped = false;

  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (mapped) {
      ::munmap(bytes, size);
    } else {
      std::free(bytes);
    }
  }
};

namespace {

constexpr size_t kAlignment = 64;

[[noreturn]] void fail_errno(const std::string& source, const std::string& what) {
  fail_safetensors(source, what + ": " + std::strerror(errno));
}

void read_exactly(int fd, char* to, uint64_t count, uint64_t offset, const std::string& source) {
  for (uint64_t done = 0; done < count;) {
    const ssize_t got = ::pread(fd, to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(source, "read");
    if (got == 0) fail_safetensors(source, "the file shrank while it was read");
    done += static_cast<uint64_t>(got);
  }
}

uint64_t checked_size(int fd, uint64_t max_bytes, const std::string& source) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno(source, "stat");
  if (!S_ISREG(info.st_mode)) fail_safetensors(source, "expected a regular file");
  if ((info.st_mode & S_IWOTH) != 0) {
    fail_safetensors(source, "everybody may write to the file; take that right away (chmod o-w)");
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size < kLengthBytes) {
    fail_safetensors(source, "expected at least 8 bytes, found " + std::to_string(size));
  }
  if (size > max_bytes) {
    fail_safetensors(source, "expected at most " + std::to_string(max_bytes) + " bytes, found " +
                                 std::to_string(size));
  }
  return size;
}

}  // namespace

Safetensors::Safetensors(std::shared_ptr<const File> file) : file_(std::move(file)) {}

Safetensors Safetensors::open(const std::filesystem::path& path, Access access,
                              uint64_t max_bytes) {
  const std::string source = path.string();
  const int follow = access == Access::kRead ? O_NOFOLLOW : 0;
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | follow));
  if (!fd) fail_errno(source, "open");

  auto file = std::make_shared<File>();
  file->path = path;
  file->size = checked_size(fd.get(), max_bytes, source);
  unsigned char prefix[kLengthBytes];
  read_exactly(fd.get(), reinterpret_cast<char*>(prefix), kLengthBytes, 0, source);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | prefix[i];
  checked_header_length(length, file->size, source);
  file->data = kLengthBytes + length;
  std::string json(length, '\0');
  read_exactly(fd.get(), json.data(), length, kLengthBytes, source);
  file->header = parse_header(json, file->size - file->data, source);

  if (access == Access::kMap) {
    void* mapping = ::mmap(nullptr, file->size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (mapping == MAP_FAILED) fail_errno(source, "mmap");
    file->bytes = static_cast<char*>(mapping);
    file->mapped = true;
  } else {
    file->bytes = static_cast<char*>(
        std::aligned_alloc(kAlignment, (file->size / kAlignment + 1) * kAlignment));
    if (file->bytes == nullptr) throw std::bad_alloc();
    read_exactly(fd.get(), file->bytes, file->size, 0, source);
    if (std::memcmp(file->bytes + kLengthBytes, json.data(), length) != 0) {
      fail_safetensors(source, "the file changed while it was read");
    }
  }
  return Safetensors(std::move(file));
}

const std::map<std::string, TensorInfo>& Safetensors::tensors() const {
  return file_->header.tensors;
}
const std::map<std::string, std::string>& Safetensors::metadata() const {
  return file_->header.metadata;
}
bool Safetensors::has(const std::string& name) const {
  return file_->header.tensors.contains(name);
}

at::Tensor Safetensors::tensor(const std::string& name) const {
  const auto found = file_->header.tensors.find(name);
  if (found == file_->header.tensors.end()) {
    fail_safetensors(file_->path.string(), "expected tensor \"" + name + "\", found none");
  }
  const TensorInfo& info = found->second;
  char* at = file_->bytes + file_->data + info.begin;
  const auto options = at::TensorOptions().dtype(info.dtype);
  if (reinterpret_cast<uintptr_t>(at) % c10::elementSize(info.dtype) != 0) {
    at::Tensor copy = at::empty(info.shape, options);
    std::memcpy(copy.mutable_data_ptr(), at, info.end - info.begin);
    return copy;
  }
  return at::from_blob(
      at, info.shape, [keep = file_](void*) {}, options);
}

std::span<const char> Safetensors::mapping() const {
  if (!file_->mapped) return {};
  return {file_->bytes, file_->size};
}

std::string Safetensors::sha256() const {
  return base::sha256_hex({file_->bytes, file_->size});
}

namespace {

// Whether one of `count` numbers has all bits of `exponent` set: Inf or NaN. One pass without a
// mask of the results, so that looking through a model costs less than hashing it.
template <typename Bits>
bool has_full_exponent(const void* data, int64_t count, Bits exponent) {
  const auto* bytes = static_cast<const char*>(data);
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  return found != 0;
}

// Of a contiguous tensor. Types of which the bits are not known here are taken to have one.
bool may_hold_non_finite(const at::Tensor& flat) {
  const void* data = flat.const_data_ptr();
  switch (flat.scalar_type()) {
    case at::kFloat:
      return has_full_exponent<uint32_t>(data, flat.numel(), 0x7f800000U);
    case at::kDouble:
      return has_full_exponent<uint64_t>(data, flat.numel(), 0x7ff0000000000000U);
    case at::kBFloat16:
      return has_full_exponent<uint16_t>(data, flat.numel(), 0x7f80U);
    case at::kHalf:
      return has_full_exponent<uint16_t>(data, flat.numel(), 0x7c00U);
    default:
      return true;
  }
}

}  // namespace

void require_finite(const at::Tensor& tensor, const std::string& name) {
  if (!at::isFloatingType(tensor.scalar_type())) return;
  const at::Tensor flat = tensor.detach().reshape({-1}).contiguous();
  if (!may_hold_non_finite(flat)) return;
  // A piece at a time: the mask of a large embedding would be as large as half the model.
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t begin = 0; begin < flat.size(0); begin += kPiece) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(kPiece, flat.size(0) - begin));
    const at::Tensor finite = at::isfinite(piece);
    if (finite.all().item<bool>()) continue;
    const int64_t index = finite.logical_not().nonzero()[0].item<int64_t>();
    fail_safetensors(name, "expected finite values, found " +
                               std::to_string(piece[index].item<double>()) + " at index " +
                               std::to_string(begin + index));
  }
}

}  // namespace dex::model
