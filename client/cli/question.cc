#include "client/cli/question.h"

#include <iostream>

#include "client/cli/exit_code.h"

namespace dex::cli {

bool agreed(Context& context, const std::string& question, int& code) {
  if (!context.output.terminal().can_ask) {
    context.output.failure(base::invalid_argument(
        "MISSING_FIELD", "without a terminal nobody can be asked: give --yes"));
    code = kUsage;
    return false;
  }
  context.output.err() << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return true;
  context.output.note("nothing was deleted");
  code = kInterrupted;
  return false;
}

}  // namespace dex::cli
