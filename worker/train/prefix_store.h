#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/clock.h"
#include "services/base/files.h"
#include "worker/train/prefix_entries.h"

namespace dex::train {

// The files of the frozen-prefix cache: one a document, in one flat directory that all jobs on the
// host may share and anybody may empty at any time. Nothing here ends a job: what can't be read is
// a miss, and after a write that failed no more are tried. Entries carry a hash of name and
// content, so one that is damaged, cut short or not its own is a miss too, and is removed. They are
// not synced: one that a power cut takes is a miss. Jobs side by side may together exceed the bound
// by a sixteenth of it each, until the next one looks. One thread an object; blocks on the disk.
class PrefixStore {
 public:
  struct Options {
    std::filesystem::path directory;
    int64_t max_bytes = 0;  // of all entries in it
    // Of the disk, left to checkpoints and all others.
    int64_t min_free_bytes = int64_t{1} << 30;
  };
  struct Counts {
    int64_t hits = 0, misses = 0;
    int64_t damaged = 0;                        // of the misses: there was a file
    int64_t read_bytes = 0, written_bytes = 0;  // of files
    int64_t dropped = 0;                        // entries that went for others
  };

  // The clock outlives this object; entries used from now on are not dropped by it.
  PrefixStore(Options options, const base::Clock& clock);

  // Fills `content` from the entry of that name. False: there is none of exactly that size;
  // `content` is as it was.
  bool read(const std::string& name, std::span<char> content);
  void write(const std::string& name, std::string_view content);

  const Counts& counts() const { return counts_; }
  // Why nothing is written any more; empty: it is.
  const std::string& full() const { return full_; }

 private:
  std::filesystem::path path_of(const std::string& name) const;
  void touch(const std::string& name) const;
  std::vector<PrefixEntry> scan() const;
  // Whether `bytes` more fit; drops entries for them.
  bool make_room(int64_t bytes);

  Options options_;
  const base::Clock& clock_;
  int64_t begin_ms_;
  int64_t room_ = 0;  // that may be written before the directory is looked at again
  Counts counts_;
  std::string full_;
};

}  // namespace dex::train
