#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "services/base/status.h"

namespace dex::cli {

// Who may name the platform's address, in the order in which they are asked (api.md §8).
struct ServerSources {
  std::string flag;                // --server
  std::string variable;            // DEX_SERVER
  std::filesystem::path data_dir;  // of a dexd on this machine: its endpoints.json; empty: unknown
  std::string profile;             // the name of the profile in use; empty: none
  std::string profile_server;      // what it says; empty: nothing
  bool profile_chosen = false;     // by --profile, which then comes before DEX_SERVER
};

struct ServerAddress {
  std::string address;  // host:port
  // Who named it, for errors: "--server", "profile work", "DEX_SERVER", a file, "the default".
  std::string origin;
};

// The first answer of the sources, else localhost:50051. An endpoints.json that can't be used is
// an error that names the file, never passed over: UNAVAILABLE when the dexd that wrote it is gone
// (`alive` is asked for its process), INVALID_ARGUMENT when it has no address in it.
base::Result<ServerAddress> find_server(const ServerSources& sources,
                                        const std::function<bool(int64_t pid)>& alive);

}  // namespace dex::cli
