#include "worker/train/gates.h"

#include "worker/train/number_text.h"

namespace dex::train {

const char* name(Gate::OnFail on_fail) {
  switch (on_fail) {
    case Gate::OnFail::kBlockAlias:
      return "BLOCK_ALIAS";
    case Gate::OnFail::kFailJob:
      return "FAIL_JOB";
    case Gate::OnFail::kWarn:
      return "WARN";
  }
  return "";
}

GateResult judge_gate(const Gate& gate, const GateFigure& figure) {
  GateResult result{gate.name, figure, false, gate.on_fail, gate.condition};
  if (gate.bound && !figure.interval) return result;
  double decisive = figure.value;
  if (gate.bound) decisive = gate.at_least ? figure.interval->low : figure.interval->high;
  result.passed = gate.at_least ? decisive >= gate.threshold : decisive <= gate.threshold;
  return result;
}

std::string sentence(const GateResult& result) {
  std::string text = "gate " + result.gate + (result.passed ? " passed: " : " not passed: ") +
                     result.condition + "; " + number_text(result.figure.value);
  if (result.figure.interval) {
    text += " (" + number_text(result.figure.interval->low) + " to " +
            number_text(result.figure.interval->high) + ")";
  }
  return text + " over " + std::to_string(result.figure.n) +
         (result.figure.interval ? " rows" : "");
}

}  // namespace dex::train
