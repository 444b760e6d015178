#include "client/cli/promote_if.h"

#include <cstdlib>

namespace dex::cli {

base::Result<v1::Gate> parse_gate(const std::string& text) {
  const auto refused = [&text](const std::string& what) {
    return base::invalid_argument("INVALID_FIELD",
                                  "--promote-if \"" + text + "\" " + what +
                                      "; write a task, a metric and a limit: held_out.loss<=0, "
                                      "base_guard.kl<=0.1 or branch_effect.value>=0.02");
  };
  size_t at = text.find("<=");
  const bool least = at == std::string::npos;
  if (least) at = text.find(">=");
  if (at == std::string::npos) return refused("has neither <= nor >=");
  const size_t dot = text.find('.');
  if (dot == 0 || dot == std::string::npos || dot + 1 >= at)
    return refused("does not begin with task.metric");
  const std::string number = text.substr(at + 2);
  char* end = nullptr;
  const double threshold = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || threshold - threshold != 0)
    return refused("does not end with a number");
  v1::Gate gate;
  gate.set_task(text.substr(0, dot));
  gate.set_metric(text.substr(dot + 1, at - dot - 1));
  gate.set_op(least ? v1::Gate::OP_GE : v1::Gate::OP_LE);
  gate.set_threshold(threshold);
  return gate;
}

}  // namespace dex::cli
