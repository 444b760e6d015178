#pragma once

#include <functional>

#include "services/base/fd.h"

namespace dex::support {

// Another network beside this process's own one (enter_own_network() comes first), joined to it by
// one cable, a veth pair. It has a loopback of its own: what listens there cannot be asked from
// here. Used by the thread that made it; needs the program ip.
class FarNetwork {
 public:
  static constexpr const char* kHere = "10.77.0.1";  // our end of the cable
  static constexpr const char* kThere = "10.77.0.2";

  FarNetwork();  // throws
  ~FarNetwork();
  FarNetwork(const FarNetwork&) = delete;
  FarNetwork& operator=(const FarNetwork&) = delete;

  // What `act` starts, and whom it asks, is over there.
  void visit(const std::function<void()>& act) const;
  // Out: what is sent either way vanishes and nobody is told. Connections stay, and go on once it
  // is in again.
  void plug_cable(bool in) const;

 private:
  void lay_cable() const;

  const base::Fd here_;
  base::Fd there_;
};

}  // namespace dex::support
