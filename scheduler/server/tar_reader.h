#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::server {

// A tar of regular files in one folder, read in pieces as they come from a client. Whatever else an
// archive can hold (paths, links, devices, sparse files, names in extended headers) is refused by
// name, so nothing of it can name a place on this machine. Not thread-safe.
class TarReader {
 public:
  // Takes the files one after the other; a failure ends the reading.
  class Target {
   public:
    virtual ~Target() = default;
    // `name` is plain: printable ASCII without '/', not beginning with '.'.
    virtual base::Status begin(const std::string& name, int64_t bytes) = 0;
    virtual base::Status append(std::string_view bytes) = 0;
    virtual base::Status end() = 0;
  };
  explicit TarReader(Target& target) : target_(target) {}  // the target outlives this object

  // INVALID_FIELD of field `chunk` for what is no such archive; the target's failures. After a
  // failure only the destructor.
  base::Status feed(std::string_view bytes);
  // After the last byte: INVALID_FIELD when the archive ended early.
  base::Status finish() const;

 private:
  base::Status take_header();
  base::Status take_payload(std::string_view piece);
  base::Status begin_file(const std::string& name, int64_t bytes);
  base::Status end_member();

  enum class Member { kNone, kFile, kExtended };  // kExtended: pax records of the next file

  Target& target_;
  std::string header_;
  std::string extended_;
  Member member_ = Member::kNone;
  int64_t left_ = 0;     // of the member's payload
  int64_t padding_ = 0;  // behind it, to the next block
  bool ended_ = false;   // the empty block has come
};

}  // namespace dex::server
