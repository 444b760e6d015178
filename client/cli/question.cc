#include "client/cli/question.h"

#include <iostream>

namespace dex::cli {

bool can_be_asked(Context& context) {
  if (context.output.terminal().can_ask) return true;
  context.output.failure(base::invalid_argument(
      "MISSING_FIELD", "without a terminal nobody can be asked: give --yes"));
  return false;
}

bool agreed(Context& context, const std::string& question, const std::string& no) {
  context.output.err() << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return true;
  context.output.note(no);
  return false;
}

}  // namespace dex::cli
