#pragma once

#include <string>
#include <vector>

#include "tests/unit/proto/listing.h"

namespace dex::contract {

struct Comparison {
  std::vector<std::string> breaks;     // what a client or stored data would notice, a sentence each
  std::vector<std::string> additions;  // lines that are new
};

// What became of a promised listing. A break is whatever changes a promised line (number, type,
// presence, oneof, streaming), and a promised line that is gone. Only a field or enum value may go,
// once its number and its name are `reserved`; what is reserved stays so. Everything else that is
// new is an addition.
Comparison compare(const Listing& promised, const Listing& now);

}  // namespace dex::contract
