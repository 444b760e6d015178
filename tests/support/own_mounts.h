#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "services/base/subprocess.h"
#include "tests/support/eventually.h"

namespace dex::support {

// Arguments of unshare for a mount namespace of one's own. Root needs no more. Others, and a root
// that may not mount, need a user namespace too, which kernels refuse inside a chroot.
inline std::vector<std::string> own_mounts() {
  const std::vector<std::string> plain = {"--mount", "--propagation", "unchanged"};
  base::Subprocess::Options probe;
  probe.program = "unshare";
  probe.args = plain;
  probe.args.emplace_back("true");
  probe.stderr_file = "/dev/null";
  if (geteuid() == 0) {
    const auto tried = base::Subprocess::start(probe);
    const auto end = tried.ok() ? (*tried)->wait(kPatience_ms) : std::nullopt;
    if (end && end->success()) return plain;
  }
  std::vector<std::string> mapped = plain;
  mapped.insert(mapped.begin(), "--map-root-user");
  return mapped;
}

}  // namespace dex::support
