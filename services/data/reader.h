#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "services/base/fd.h"
#include "services/base/status.h"
#include "services/data/validator.h"

namespace dex::data {

// Reads a data file from the disk, row by row, with the checks of the Validator. Memory: one line
// or 256 KiB of rows. Blocks on the disk. Not thread-safe.
class RowReader {
 public:
  // `options.on_row` is not used. A file that can't be opened, or is none, is an error.
  static base::Result<std::unique_ptr<RowReader>> open(const std::filesystem::path& path,
                                                       Validator::Options options = {});

  // The next good row; nullopt at the end. Bad rows are skipped and stand in the report.
  base::Result<std::optional<Row>> next();
  // After next() gave nullopt: what the whole file came to.
  const Report& report() const { return report_; }

 private:
  RowReader(std::filesystem::path path, base::Fd file, Validator::Options options);

  std::filesystem::path path_;
  base::Fd file_;
  std::deque<Row> rows_;
  Validator validator_;
  std::string buffer_;
  bool ended_ = false;
  Report report_;
};

// Hands the file's bytes to `sink` in pieces of at most 256 KiB, until its end or the first error,
// which comes back. A file that can't be opened, or is none, is an error. Blocks on the disk.
base::Status read_pieces(const std::filesystem::path& path,
                         const std::function<base::Status(std::string_view)>& sink);

// Reads the whole file and says what it came to; CANCELLED if stopped.
base::Result<Report> validate_file(const std::filesystem::path& path,
                                   Validator::Options options = {}, std::stop_token stop = {});

}  // namespace dex::data
