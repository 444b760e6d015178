#include "services/data/file_signature.h"

namespace dex::data {

using std::literals::operator""sv;

namespace {

Signature utf16(std::string_view message) {
  return {"encoding_utf16", message, "iconv -f UTF-16 -t UTF-8 IN > OUT"};
}

Signature utf32(std::string_view message) {
  return {"encoding_utf16", message, "iconv -f UTF-32 -t UTF-8 IN > OUT"};
}

}  // namespace

Signature recognize(std::string_view head) {
  const auto is = [&](std::string_view magic) { return head.starts_with(magic); };
  if (is("\x1F\x8B"sv))
    return {"compressed_file", "the file is compressed with gzip", "gunzip -c IN > OUT"};
  if (is("PK\x03\x04"sv) || is("PK\x05\x06"sv)) {
    return {"compressed_file", "the file is a zip archive", "unzip -p IN > OUT"};
  }
  if (is("\x28\xB5\x2F\xFD"sv))
    return {"compressed_file", "the file is compressed with zstd", "zstd -dc IN > OUT"};
  if (is("BZh"sv))
    return {"compressed_file", "the file is compressed with bzip2", "bunzip2 -c IN > OUT"};
  if (is("\xFD"
         "7zXZ\0"sv))
    return {"compressed_file", "the file is compressed with xz", "xz -dc IN > OUT"};
  if (is("7z\xBC\xAF"sv))
    return {"compressed_file", "the file is a 7z archive", "7z x -so IN > OUT"};
  // UTF-32's mark begins with UTF-16's: it comes first.
  if (is("\xFF\xFE\0\0"sv) || is("\0\0\xFE\xFF"sv))
    return utf32("the file is UTF-32, expected UTF-8");
  if (is("\xFF\xFE"sv) || is("\xFE\xFF"sv)) return utf16("the file is UTF-16, expected UTF-8");
  if (is("{\0\0\0"sv))
    return utf32("the file looks like UTF-32 without a byte order mark, expected UTF-8");
  if (head.size() >= 4 && head[0] != 0 && head[1] == 0 && head[2] != 0 && head[3] == 0) {
    return {"encoding_utf16",
            "the file looks like UTF-16 without a byte order mark, expected UTF-8",
            "iconv -f UTF-16LE -t UTF-8 IN > OUT"};
  }
  if (head.size() >= 4 && head[0] == 0 && head[1] != 0 && head[2] == 0 && head[3] != 0) {
    return {"encoding_utf16",
            "the file looks like UTF-16 without a byte order mark, expected UTF-8",
            "iconv -f UTF-16BE -t UTF-8 IN > OUT"};
  }
  return {};
}

}  // namespace dex::data
