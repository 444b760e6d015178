#pragma once

#include <cstdint>
#include <string>

#include "client/cli/output.h"
#include "dex/v1/admin.pb.h"

namespace dex::cli {

// What the client itself can see of the platform that it asked.
struct ClientSide {
  std::string version;   // of dexctl
  int64_t asked_ms = 0;  // the client's clock before and after the call
  int64_t answered_ms = 0;
};

// Puts what the client sees before the server's own checks (topic "server").
void add_client_checks(const ClientSide& client, v1::Health& health);

// The page for people: checks by topic, each with its remedy, then what the setting promises.
std::string health_text(const v1::Health& health, const Terminal& terminal);

// 0: all is well. kNotPassed: warnings. kSystemFault: something fails.
int exit_code(const v1::Health& health);

}  // namespace dex::cli
