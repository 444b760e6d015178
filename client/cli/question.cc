#include "client/cli/question.h"

#include <iostream>

#include "client/cli/exit_code.h"

namespace dex::cli {

bool can_be_asked(Context& context) {
  if (context.output.terminal().can_ask) return true;
  context.output.failure(base::invalid_argument(
      "MISSING_FIELD", "without a terminal nobody can be asked: give --yes"));
  return false;
}

bool said_yes(Context& context, const std::string& question) {
  context.output.err() << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

bool agreed(Context& context, const std::string& question, int& code) {
  if (!can_be_asked(context)) {
    code = kUsage;
    return false;
  }
  if (said_yes(context, question)) return true;
  context.output.note("nothing was deleted");
  code = kInterrupted;
  return false;
}

}  // namespace dex::cli
