#include "services/data/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "services/base/errno_status.h"

namespace dex::data {

namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 256 << 10;

base::Result<base::Fd> open_regular(const fs::path& path) {
  // O_NONBLOCK: a FIFO without a writer must not hang the open.
  base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return base::errno_status(errno, "opening " + path.string());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return base::errno_status(errno, "reading " + path.string());
  if (!S_ISREG(status.st_mode)) {
    return base::invalid_argument("NOT_A_FILE", path.string() + " is not a regular file");
  }
  return file;
}

base::Result<size_t> read_piece(int file, std::string& buffer, const fs::path& path) {
  buffer.resize(kPieceBytes);
  while (true) {
    const ssize_t size = ::read(file, buffer.data(), buffer.size());
    if (size >= 0) return static_cast<size_t>(size);
    if (errno != EINTR) return base::errno_status(errno, "reading " + path.string());
  }
}

Validator::Options with_sink(Validator::Options options, std::function<void(Row)> on_row) {
  options.on_row = std::move(on_row);
  return options;
}

}  // namespace

RowReader::RowReader(fs::path path, base::Fd file, Validator::Options options)
    : path_(std::move(path)),
      file_(std::move(file)),
      validator_(
          with_sink(std::move(options), [this](Row row) { rows_.push_back(std::move(row)); })) {}

base::Result<std::unique_ptr<RowReader>> RowReader::open(const fs::path& path,
                                                         Validator::Options options) {
  DEX_ASSIGN_OR_RETURN(base::Fd file, open_regular(path));
  return std::unique_ptr<RowReader>(new RowReader(path, std::move(file), std::move(options)));
}

base::Result<std::optional<Row>> RowReader::next() {
  while (rows_.empty() && !ended_) {
    DEX_ASSIGN_OR_RETURN(const size_t size, read_piece(file_.get(), buffer_, path_));
    if (size > 0) {
      validator_.feed(std::string_view(buffer_).substr(0, size));
    } else {
      ended_ = true;
      report_ = validator_.finish();
    }
  }
  if (rows_.empty()) return std::optional<Row>();
  std::optional<Row> row = std::move(rows_.front());
  rows_.pop_front();
  return row;
}

base::Status read_pieces(const fs::path& path,
                         const std::function<base::Status(std::string_view)>& sink) {
  DEX_ASSIGN_OR_RETURN(const base::Fd file, open_regular(path));
  std::string buffer;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const size_t size, read_piece(file.get(), buffer, path));
    if (size == 0) return {};
    DEX_RETURN_IF_ERROR(sink(std::string_view(buffer).substr(0, size)));
  }
}

base::Result<Report> validate_file(const fs::path& path, Validator::Options options,
                                   std::stop_token stop) {
  Validator validator(std::move(options));
  DEX_RETURN_IF_ERROR(read_pieces(path, [&](std::string_view piece) -> base::Status {
    if (stop.stop_requested())
      return base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "validation stopped");
    validator.feed(piece);
    return {};
  }));
  return validator.finish();
}

}  // namespace dex::data
