#include "services/text/characters.h"

#include <stdexcept>

#include "services/text/ffi_border.h"
#include "services/text/utf8.h"

namespace dex::text {

namespace {

std::string repaired(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.push(text);
  return out + stream.finish();
}

// Valid UTF-8 is all that these functions ask for.
void must_be_done(int code, const std::string& error) {
  if (code != 0) throw std::logic_error("characters of a text: " + error);
}

}  // namespace

Characters characters_of(std::string_view text) {
  Characters out{repaired(text), {}};
  std::string kinds, error;
  must_be_done(dex_text_kinds(detail::borrow(out.text), detail::into(kinds), detail::into(error)),
               error);
  out.kinds.reserve(kinds.size());
  for (const char kind : kinds) out.kinds.push_back(static_cast<CharacterKind>(kind));
  return out;
}

std::string lowercase(std::string_view text) {
  const std::string valid = repaired(text);
  std::string out, error;
  must_be_done(dex_text_lowercase(detail::borrow(valid), detail::into(out), detail::into(error)),
               error);
  return out;
}

}  // namespace dex::text
