#include "tests/integration/scheduler_model/model_run.h"

#include <sstream>

namespace dex::model {

std::string run_commands_on(support::RedisServer& server, const std::vector<Command>& commands,
                            const World::Options& options, Run& run) {
  server.call({"FLUSHALL"});
  World world(server, run.tally, options);
  std::ostringstream text;
  for (size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string> wrong = world.step(commands[i]);
    ++run.steps;
    if (wrong.empty()) continue;
    text << "step " << i << ", " << commands[i];
    for (const std::string& line : wrong) text << "\n  " << line;
    return text.str();
  }
  for (const std::string& line : world.end()) text << "at the end: " << line << "\n";
  return text.str();
}

std::string run_commands(const std::vector<Command>& commands, const World::Options& options,
                         Run& run) {
  support::RedisServer server;
  return run_commands_on(server, commands, options, run);
}

}  // namespace dex::model
