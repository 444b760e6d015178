#pragma once

#include <string>
#include <vector>

#include "tests/support/redis_server.h"

namespace dex::store {

// Everything that jobs.md §14 says must hold of a store at any moment (I1 to I5, I7, no orphans),
// read with plain commands and judged here, not in Lua. Answers what is wrong, in words.
std::vector<std::string> broken_invariants(support::RedisServer& server, int64_t now_ms);

// Every key with its value, for "a repeated call changes no key" (I8).
std::string dump_all(support::RedisServer& server);

}  // namespace dex::store
