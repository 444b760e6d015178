#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/scheduler_model/command.h"

namespace dex::model {

// What is wrong after these commands; empty: nothing.
using Property = std::function<std::string(const std::vector<Command>&)>;

// Lets rapidcheck make up to `most` commands from the seed and asks `property` of them. Answers ""
// or the failure as rapidcheck tells it; with `shrink` for the shortest commands that still fail,
// as far as some time leads.
std::string falsify(uint64_t seed, int most, bool shrink, const Property& property);

}  // namespace dex::model
