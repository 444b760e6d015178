#include "scheduler/store/script.h"

#include <openssl/evp.h>

#include <cstdlib>

#include <spdlog/spdlog.h>

namespace dex::store {

namespace {

std::string sha1_hex(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(text.data(), text.size(), digest, &length, EVP_sha1(), nullptr);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

}  // namespace

Script::Script(std::string name, std::string text)
    : name(std::move(name)), text(std::move(text)), sha1(sha1_hex(this->text)) {}

const Script& find_script(std::string_view name, const std::vector<Script>& scripts) {
  for (const Script& script : scripts) {
    if (script.name == name) return script;
  }
  spdlog::critical("no script named {}", name);
  std::abort();
}

}  // namespace dex::store
