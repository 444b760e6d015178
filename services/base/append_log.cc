#include "services/base/append_log.h"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "services/base/errno_status.h"
#include "services/base/fd.h"

namespace dex::base {

namespace {

namespace fs = std::filesystem;

enum class Piece { kCommand, kEnd, kTorn, kForeign };

// Commands as Redis writes them: *2 $3 GET $1 a, each on a line that ends with CR LF.
class LogReader {
 public:
  explicit LogReader(std::istream& log) : log_(log) {}

  // The next command; `word` is its first word where that is a short one, else empty.
  Piece next(std::string& word) {
    word.clear();
    int64_t words = 0;
    const Piece head = number('*', words);
    if (head != Piece::kCommand) return head;
    for (int64_t i = 0; i < words; ++i) {
      int64_t bytes = 0;
      const Piece size = number('$', bytes);
      if (size != Piece::kCommand) return size == Piece::kEnd ? Piece::kTorn : size;
      if (!skip(bytes, i == 0 ? &word : nullptr)) return Piece::kTorn;
    }
    return Piece::kCommand;
  }

  [[nodiscard]] int64_t position() const { return position_; }

 private:
  // A line of a mark and a number. What is longer than Redis writes one, or names more than a word
  // of Redis can have, is no such line: nothing is kept of it, and nothing computed with it.
  Piece number(char mark, int64_t& value) {
    constexpr int64_t kMost = int64_t{512} << 20;  // proto-max-bulk-len, and far more words
    constexpr size_t kLongest = 24;
    std::string line;
    int c = std::istream::traits_type::eof();
    while (line.size() < kLongest && (c = log_.get()) != std::istream::traits_type::eof() &&
           c != '\n')
      line += static_cast<char>(c);
    if (log_.eof()) return line.empty() ? Piece::kEnd : Piece::kTorn;
    position_ += static_cast<int64_t>(line.size()) + 1;
    if (c != '\n' || line.size() < 3 || line.front() != mark || line.back() != '\r')
      return Piece::kForeign;
    const char* end = line.data() + line.size() - 1;
    const auto [at, error] = std::from_chars(line.data() + 1, end, value);
    return error == std::errc() && at == end && value >= 0 && value <= kMost ? Piece::kCommand
                                                                             : Piece::kForeign;
  }

  // A word of so many bytes and its CR LF.
  bool skip(int64_t bytes, std::string* word) {
    constexpr int64_t kShort = 16;
    if (word != nullptr && bytes <= kShort) {
      word->resize(static_cast<size_t>(bytes));
      log_.read(word->data(), bytes);
      if (log_.gcount() < bytes) return false;
      bytes = 0;
      position_ += static_cast<int64_t>(word->size());
    }
    log_.ignore(bytes + 2);
    position_ += log_.gcount();
    return log_.gcount() == bytes + 2;
  }

  std::istream& log_;
  int64_t position_ = 0;  // behind the last line or word
};

// The log that Redis appends to, by its manifest: "file NAME seq N type i" a line.
std::optional<fs::path> newest_log(const fs::path& directory) {
  std::ifstream manifest(directory / "appendonly.aof.manifest");
  std::optional<fs::path> newest;
  int64_t highest = 0;
  for (std::string line; std::getline(manifest, line);) {
    std::istringstream words(line);
    std::string file, name, seq, type, kind;
    int64_t number = 0;
    if (!(words >> file >> name >> seq >> number >> type >> kind) || kind != "i") continue;
    if (newest && number < highest) continue;
    highest = number;
    newest = directory / name;
  }
  return newest;
}

}  // namespace

std::optional<int64_t> torn_transaction(std::istream& log) {
  LogReader reader(log);
  std::optional<int64_t> open;  // where a MULTI stands that has no EXEC yet
  for (std::string word;;) {
    const int64_t begin = reader.position();
    const Piece piece = reader.next(word);
    if (piece == Piece::kForeign) return std::nullopt;
    if (piece != Piece::kCommand) return open;
    if (strcasecmp(word.c_str(), "multi") == 0) {
      if (open) return std::nullopt;  // torn long ago and written behind: not ours to cut
      open = begin;
    } else if (strcasecmp(word.c_str(), "exec") == 0) {
      open.reset();
    }
  }
}

Result<int64_t> cut_torn_transaction(const fs::path& directory) {
  const std::optional<fs::path> path = newest_log(directory);
  if (!path) return int64_t{0};
  std::ifstream log(*path, std::ios::binary);
  if (!log) return int64_t{0};  // Redis makes it when it writes first
  const std::optional<int64_t> begin = torn_transaction(log);
  if (!begin) return int64_t{0};
  const Fd file(::open(path->c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno_status(errno, "opening " + path->string());
  const int64_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < 0 || ::ftruncate(file.get(), *begin) != 0 || ::fsync(file.get()) != 0) {
    return errno_status(errno, "cutting " + path->string());
  }
  return size - *begin;
}

}  // namespace dex::base
