#pragma once

namespace dex::support {

// Leaves a namespace that this process shares with the machine, CLONE_NEWNET or CLONE_NEWNS, for
// one of its own, with all that it will start. Before the first thread. Needs root, or a kernel
// that gives user namespaces to everybody; throws without.
void enter_own_namespace(int kind);

}  // namespace dex::support
