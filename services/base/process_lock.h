#pragma once

#include <filesystem>

#include "services/base/fd.h"
#include "services/base/status.h"

namespace dex::base {

// An exclusive flock on a file, made when missing, held as long as any copy of the descriptor
// lives: hand it to a child and the child's life counts too. The holder's pid is written into the
// file for messages. Held by somebody else → UNAVAILABLE LOCKED with that pid; never waits.
Result<Fd> lock_file(const std::filesystem::path& path);

}  // namespace dex::base
