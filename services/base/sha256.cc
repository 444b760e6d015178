#include "services/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "services/base/errno_status.h"
#include "services/base/fd.h"

namespace dex::base {

namespace {
// OpenSSL's digest calls fail only without memory or without the algorithm; then nothing here is
// true.
void must(int ok) {
  if (ok == 1) return;
  std::fputs("SHA-256 is not available in this OpenSSL\n", stderr);
  std::abort();
}
}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() { must(md != nullptr ? 1 : 0); }
  ~Context() { EVP_MD_CTX_free(md); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  must(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
  must(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()));
}

void Sha256::update(std::span<const uint8_t> bytes) {
  must(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  must(EVP_DigestFinal_ex(context_->md, digest.data(), &size));
  must(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(digest.size() * 2);
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_status(errno, "cannot open " + path.string());
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(errno, "cannot read " + path.string());
    if (got == 0) return hash.hex();
    hash.update(std::string_view(buffer.data(), static_cast<size_t>(got)));
  }
}

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace dex::base
