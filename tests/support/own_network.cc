#include "tests/support/own_network.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "services/base/fd.h"
#include "tests/support/own_namespace.h"

namespace dex::support {

void enter_own_network() {
  static bool entered = false;
  if (entered) return;
  enter_own_namespace(CLONE_NEWNET);
  entered = true;
  set_loopback(true);
}

void set_interface(const std::string& name, bool up) {
  const base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), sizeof request.ifr_name - 1);
  bool good = ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0;
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  good = good && ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
  if (!good) throw std::runtime_error(name + " keeps its flags: " + std::strerror(errno));
}

}  // namespace dex::support
