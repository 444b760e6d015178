// The archive of an adapter's import, as it comes from a client in pieces.
#include "scheduler/server/tar_reader.h"

#include <algorithm>

#include "tests/fuzz/target.h"
#include "tests/support/written_tar.h"

namespace dex::fuzz {

namespace {

// Holds the reader to what it promises its target: plain names, and as many bytes as it said.
class Checked : public server::TarReader::Target {
 public:
  base::Status begin(const std::string& name, int64_t bytes) override {
    require(!inside_, "one file after the other");
    require(!name.empty() && name.front() != '.', "a plain name");
    require(name.find_first_of(std::string("/\\\0 ", 4)) == std::string::npos, "a plain name");
    require(bytes >= 0, "a size");
    if (bytes > 1 << 20) return base::invalid_field("chunk", "too large");
    inside_ = true;
    left_ = bytes;
    return {};
  }
  base::Status append(std::string_view bytes) override {
    left_ -= static_cast<int64_t>(bytes.size());
    require(inside_ && left_ >= 0, "no more bytes than were said");
    return {};
  }
  base::Status end() override {
    require(inside_ && left_ == 0, "all bytes that were said");
    inside_ = false;
    return {};
  }

 private:
  bool inside_ = false;
  int64_t left_ = 0;
};

base::Status read(std::string_view bytes, size_t piece) {
  Checked target;
  server::TarReader reader(target);
  for (size_t at = 0; at < bytes.size(); at += piece)
    DEX_RETURN_IF_ERROR(reader.feed(bytes.substr(at, piece)));
  return reader.finish();
}

}  // namespace

Corpus corpus() {
  const support::TarEntries files = {{"adapter_config.json", "{}"},
                                     {"adapter_model.safetensors", std::string(700, 'x')},
                                     {"empty", ""}};
  Corpus made;
  for (const int format :
       {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_GNUTAR}) {
    // Without most of the zeros at its end, where changes would be lost.
    std::string tar = support::written_tar(files, AE_IFREG, format);
    tar.resize(std::min(tar.size(), tar.find_last_not_of('\0') + 2049));
    made.seeds.push_back(tar);
  }
  made.seeds.push_back(support::written_tar({{"../up", "x"}}).substr(0, 2048));
  made.seeds.push_back(support::written_tar({{"link", "/etc/passwd"}}, AE_IFLNK).substr(0, 2048));
  made.words = {"ustar",
                std::string("ustar\0"
                            "00",
                            8),
                "00000000000",
                "77777777777",
                "../",
                "/",
                std::string(512, '\0'),
                " path=",
                " size=",
                "12 path=../x\n",
                "\x80"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string_view bytes = view(data, size);
  const auto whole = read(bytes, size + 1);
  check(whole);
  const auto cut = read(bytes, 1 + size % 600);
  require(whole.ok() == cut.ok() && whole.message() == cut.message(), "a cut changes nothing");
  if (whole.ok()) taken();

  // A change of a header is mostly found by its sum, and hides what is behind: the same with right
  // sums.
  std::string summed(bytes);
  for (size_t at = 0; at + 512 <= summed.size(); at += 512) {
    if (summed.compare(at + 257, 5, "ustar") != 0) continue;
    std::fill_n(summed.begin() + static_cast<std::ptrdiff_t>(at) + 148, 8, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(summed[at + i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    summed.replace(at + 148, 7, digits, 7);
  }
  check(read(summed, size + 1));
  return 0;
}
