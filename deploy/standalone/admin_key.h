#pragma once

#include <filesystem>

#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::standalone {

// DIR/admin.key: the operator's API key, for whoever may read this user's files (api.md §1, doors).
// Makes one with mode 0600 where none is, else leaves it as it is; answers where it lies. The
// scheduler stores its hash. FAILED_PRECONDITION `ADMIN_KEY_UNUSABLE` for a file that holds no key
// or that others may read. Blocks on the disk.
base::Result<std::filesystem::path> prepare_admin_key(const std::filesystem::path& data_dir,
                                                      base::RandomSource& random);

}  // namespace dex::standalone
