#include "tests/support/far_network.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/own_network.h"

namespace dex::support {

namespace {

constexpr const char* kHereEnd = "dex-here";
constexpr const char* kThereEnd = "dex-there";

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

base::Fd network_of_this_thread() {
  base::Fd network(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!network) fail("a network without a name");
  return network;
}

// The calling thread lives there from now on, until this object ends.
class Stay {
 public:
  Stay(const base::Fd& there, const base::Fd& home) : home_(home) {
    if (::setns(there.get(), CLONE_NEWNET) != 0) fail("no way into the other network");
  }
  ~Stay() { (void)::setns(home_.get(), CLONE_NEWNET); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  const base::Fd& home_;
};

// `inherit`: descriptors that ip knows as /proc/self/fd/3 and so on.
void ip(std::vector<std::string> args, std::vector<int> inherit = {}) {
  base::Subprocess::Options options;
  options.program = "ip";
  options.args = std::move(args);
  options.inherit = std::move(inherit);
  const auto started = base::Subprocess::start(options);
  const auto end = started.ok() ? (*started)->wait(kPatience_ms) : std::nullopt;
  if (end && end->success()) return;
  std::string line = "ip";
  for (const std::string& word : options.args) line += " " + word;
  throw std::runtime_error(line + " failed; it is of the package iproute2");
}

}  // namespace

FarNetwork::FarNetwork() : here_(network_of_this_thread()) {
  if (::unshare(CLONE_NEWNET) != 0) fail("no second network");
  there_ = network_of_this_thread();
  {
    const Stay stay(there_, here_);  // which also brings this thread back
    set_loopback(true);
  }
  lay_cable();
}

FarNetwork::~FarNetwork() {
  try {
    ip({"link", "delete", kHereEnd});  // and with it the other end
  } catch (const std::runtime_error&) {
    // The next one of this process will say so.
  }
}

void FarNetwork::lay_cable() const {
  ip({"link", "add", kHereEnd, "type", "veth", "peer", "name", kThereEnd, "netns",
      "/proc/self/fd/3"},
     {there_.get()});
  ip({"address", "add", std::string(kHere) + "/30", "dev", kHereEnd});
  plug_cable(true);
  visit([] {
    ip({"address", "add", std::string(kThere) + "/30", "dev", kThereEnd});
    set_interface(kThereEnd, true);
  });
}

void FarNetwork::visit(const std::function<void()>& act) const {
  const Stay stay(there_, here_);
  act();
}

// By our end: at the other one a cable that is out looks like one to nowhere.
void FarNetwork::plug_cable(bool in) const {
  set_interface(kHereEnd, in);
}

}  // namespace dex::support
