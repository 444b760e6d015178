#pragma once

#include <string>

namespace dex::support {

// Moves this process, and all that it will start, into a network of its own in which there is only
// loopback, up. Before the first thread and the first socket; later calls change nothing, for the
// threads of before would stay where they are. Needs root, or a kernel that gives user namespaces
// to everybody; throws without.
void enter_own_network();

// Takes an interface of the calling thread's network up or down. Down: nothing passes any more, not
// even a reset; open connections stay and go on once it is up again. Sockets in the file system are
// not concerned. Only in an own network.
void set_interface(const std::string& name, bool up);
inline void set_loopback(bool up) {
  set_interface("lo", up);
}

}  // namespace dex::support
