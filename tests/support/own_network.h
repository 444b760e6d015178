#pragma once

namespace dex::support {

// Moves this process, and all that it will start, into a network of its own in which there is only
// loopback, up. Before the first thread and the first socket. Needs root, or a kernel that gives
// user namespaces to everybody; throws without.
void enter_own_network();

// Down: nothing reaches anybody any more, not even a reset; open connections stay and go on once it
// is up again. Sockets in the file system are not concerned. Only in an own network.
void set_loopback(bool up);

}  // namespace dex::support
