#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/scheduler_model/world.h"

namespace dex::model {

struct Run {
  int64_t steps = 0;
  Tally tally;
};

// Does the commands, one after the other, on a Redis of their own. What is wrong, with the step;
// empty: nothing.
std::string run_commands(const std::vector<Command>& commands, const World::Options& options,
                         Run& run);
// The same on a server that is there; it is emptied first.
std::string run_commands_on(support::RedisServer& server, const std::vector<Command>& commands,
                            const World::Options& options, Run& run);

}  // namespace dex::model
