#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string_view>

#include "services/base/status.h"

namespace dex::standalone {

// The TCP port of this machine's IPv4 addresses on which process `pid` listens, for programs that
// take any free one and tell nobody which. UNAVAILABLE NOT_READY while it listens on none; of
// several the smallest. Reads /proc; never blocks.
base::Result<uint16_t> listening_port(pid_t pid);

// The same from the text of /proc/<pid>/net/tcp, among the sockets with these inodes; 0: none.
uint16_t listening_port_in(std::string_view table, const std::set<uint64_t>& inodes);

}  // namespace dex::standalone
