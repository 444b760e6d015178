#include "worker/train/gates.h"

#include "proto/gates.h"
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
  proto::MeasuredFigure measured{figure.value, std::nullopt, std::nullopt, figure.n};
  if (figure.interval) {
    measured.low = figure.interval->low;
    measured.high = figure.interval->high;
  }
  const std::string why = gate.bound ? proto::undecided_bound(measured) : "";
  const bool passed =
      why.empty() && proto::passes({gate.at_least, gate.bound, gate.threshold}, measured);
  return {gate.name, figure, passed, gate.on_fail, gate.condition, why};
}

std::string sentence(const GateResult& result) {
  std::string text = "gate " + result.gate + (result.passed ? " passed: " : " not passed: ") +
                     result.condition + "; ";
  if (!result.not_measured.empty()) return text + "not measured: " + result.not_measured;
  text += number_text(result.figure.value);
  if (result.figure.interval) {
    text += " (" + number_text(result.figure.interval->low) + " to " +
            number_text(result.figure.interval->high) + ")";
  }
  return text + " over " + std::to_string(result.figure.n) +
         (result.figure.interval ? " rows" : "");
}

}  // namespace dex::train
