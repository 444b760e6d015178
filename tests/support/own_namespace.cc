#include "tests/support/own_namespace.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

namespace dex::support {

namespace {

// In a user namespace this user is its root.
void enter_as_anybody(int kind) {
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | kind) != 0) {
    throw std::runtime_error(std::string("no namespace of our own: ") + std::strerror(errno));
  }
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
  std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
}

}  // namespace

void enter_own_namespace(int kind) {
  if (::unshare(kind) != 0) enter_as_anybody(kind);
}

}  // namespace dex::support
