#pragma once

#include <filesystem>
#include <string>

#include "client/cli/server_address.h"
#include "services/base/status.h"

namespace dex::cli {

// Who may give the API key, in the order in which they are asked (api.md §8). Never a flag's value:
// others on the machine read command lines.
struct ApiKeySources {
  std::filesystem::path file;  // --api-key-file
  std::string variable;        // DEX_API_KEY
  ServerAddress server;        // found in a dexd's endpoints.json: the admin.key beside it
};

// The first answer; empty: nobody has one, and the server may want none. A file that was named must
// be there, hold a line of text and be its owner's alone: INVALID_ARGUMENT says what to do. An
// admin.key is taken where this user may read it. Blocks on the disk.
base::Result<std::string> find_api_key(const ApiKeySources& sources);

}  // namespace dex::cli
