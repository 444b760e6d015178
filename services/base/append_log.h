#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <optional>

#include "services/base/status.h"

namespace dex::base {

// What a killed Redis leaves of its append-only log. A script's writes stand in it between MULTI
// and EXEC, and a kill can cut that off in the middle of a word. Redis 7 then keeps the whole
// commands behind the MULTI and appends to them: its next start is right, but the one after that
// applies half a script that never happened (or, when the log was rewritten in between, refuses
// the log). So whoever starts Redis cuts the torn transaction off before. Nobody was told of it:
// with appendfsync always an answer follows the write of its EXEC.

// Where a transaction begins that the log ends inside of; nullopt: it ends elsewhere (also inside
// a command outside of any transaction, which Redis itself cuts off), or is no such log.
std::optional<int64_t> torn_transaction(std::istream& log);

// Cuts such a transaction off the newest log in Redis' `appenddirname` and syncs it. How many bytes
// went: 0, as a rule and where there is no log yet. Only while no Redis uses the folder. Reads the
// whole log; errors are those of the file system.
Result<int64_t> cut_torn_transaction(const std::filesystem::path& directory);

}  // namespace dex::base
