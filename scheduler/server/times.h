#pragma once

#include "services/rpc/times.h"

namespace dex::server {

using rpc::timestamp;
using rpc::unix_ms;

}  // namespace dex::server
