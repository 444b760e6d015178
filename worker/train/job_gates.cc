// What stands between a job's last update and its artefact: the base guard's last word and the
// gates.
#include <cmath>
#include <nlohmann/json.hpp>

#include "worker/train/gate_figures.h"
#include "worker/train/job_run.h"

namespace dex::train::detail {

using nlohmann::json;

namespace {

void tell(const GateResult& result, Session& session) {
  const auto number = [](double value) {  // protobuf's JSON takes the word
    return std::isfinite(value) ? json(value) : json("NaN");
  };
  json data = {{"gate", result.gate},
               {"value", number(result.figure.value)},
               {"n", std::to_string(result.figure.n)},
               {"passed", result.passed},
               {"onFail", name(result.on_fail)},
               {"condition", result.condition},
               {"notMeasured", result.not_measured}};
  if (result.figure.interval) {
    data["low"] = number(result.figure.interval->low);
    data["high"] = number(result.figure.interval->high);
  }
  const auto level = result.passed ? Event::Level::kInfo : Event::Level::kWarn;
  session.event({level, "gate_result", sentence(result), data.dump()});
}

}  // namespace

model::Adaptation Job::base_adaptation() const {
  model::Adaptation base;
  if (spec_.dex.has_second_map()) base.mix = 0;  // method.md §8.4: the pretrained model
  return base;
}

void Job::make_probe() {
  if (!spec_.needs_probe()) return;
  enter(Phase::kEvaluating);
  const std::vector<Example> rows = load_probe(spec_, config_);
  probe_ = std::make_unique<evaluate::BaseProbe>(
      *llama_, base_adaptation(), in_batches(first_documents(rows, total_tokens(rows))),
      [this] { controls_.stop_here(); });
}

GateFigure Job::held_out_figure(bool against_base) {
  kernels::LinearCrossEntropy cross_entropy;
  const auto losses = [&](const model::Adaptation& adaptation) {
    return evaluate::document_losses(*llama_, adaptation, held_out_, cross_entropy,
                                     [this] { controls_.poll(); });
  };
  std::vector<RowSum> rows;
  for (const auto& document : losses(adaptation_)) rows.push_back({document.loss, document.weight});
  if (against_base) {
    const auto before = losses(base_adaptation());
    for (size_t i = 0; i < rows.size(); ++i) rows[i].sum -= before[i].loss;
  }
  return mean_over_rows(std::move(rows), spec_.seed);
}

GateFigure Job::figure_of(const Gate& gate, const evaluate::BranchEffect& effect) {
  switch (gate.figure) {
    case Gate::Figure::kHeldOutLoss:
      return held_out_figure(gate.against_base);
    case Gate::Figure::kBranchValue:
      return {effect.value, std::nullopt, effect.tokens};
    case Gate::Figure::kBranchCeDelta:
      return {effect.ce_delta, std::nullopt, effect.tokens};
    case Gate::Figure::kBaseKl:
      break;
  }
  const auto& divergence = training_->served_divergence();
  std::vector<RowSum> rows;
  for (size_t i = 0; i < divergence.document_kl.size(); ++i) {
    rows.push_back({divergence.document_kl[i], static_cast<double>(divergence.document_tokens[i])});
  }
  return mean_over_rows(std::move(rows), spec_.seed);
}

void Job::judge_gates(Published& out) {
  // method.md §2.6: a branch that does nothing is nothing to promote.
  out.promotable = out.branch_effect.verdict != evaluate::BranchEffect::Verdict::kInert;
  if (probe_) out.base_kl = training_->served_divergence().kl;
  std::string failed;
  for (const Gate& gate : spec_.gates) {
    const GateResult result = judge_gate(gate, figure_of(gate, out.branch_effect));
    tell(result, session_);
    out.gate_results.push_back(result);
    if (result.passed) continue;
    if (gate.on_fail == Gate::OnFail::kBlockAlias) out.promotable = false;
    if (gate.on_fail == Gate::OnFail::kFailJob)
      failed += (failed.empty() ? "" : "; ") + sentence(result);
  }
  if (!failed.empty())
    throw Failure(Exit::kGuard, "gate_failed", failed + ". Nothing is published", "gates");
}

}  // namespace dex::train::detail
