#include "worker/train/advice.h"

#include <algorithm>
#include <cmath>

#include "worker/evaluate/quantile.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

using evaluate::quantile_of;

constexpr double kReachWanted = 0.02, kDegradedRatio = 1.005;
constexpr size_t kUnstableWindow = 50;

// F of method.md §2.2.
double rate_sum(const JobSpec& spec, const Resolved& resolved) {
  return learning_rate_reach(spec.hyperparameters.schedule, resolved.updates, resolved.warmup);
}

double lambda_reach(const JobSpec& spec, double factor_sum) {
  const auto& lambda = spec.dex.lambda;
  if (spec.dex.learns_lambda()) {
    return std::abs(lambda.learn_init) + spec.hyperparameters.lambda_learning_rate * factor_sum;
  }
  if (lambda.schedule == model::Schedule::kConstant) return std::abs(lambda.value);
  return std::max(std::abs(lambda.start), std::abs(lambda.end));
}

std::string now(double value) {
  return " (now " + number_text(value) + ")";
}

// "branch_learning_rate to 0.001 (now 1.0e-04)"; a rate that is there already only goes up.
std::string raised(const std::string& rate, double value, double wanted) {
  return rate + (value < wanted ? " to " + number_text(wanted) : "") + now(value);
}

// What makes the branch stronger: λ by the means of its schedule, D by its rate, both by time.
std::string stronger_branch(const JobSpec& spec) {
  const auto& lambda = spec.dex.lambda;
  const Hyperparameters& rates = spec.hyperparameters;
  const std::string branch = raised("branch_learning_rate", rates.branch_learning_rate, 1e-3);
  if (spec.dex.learns_lambda()) {
    return "raise " + raised("lambda_learning_rate", rates.lambda_learning_rate, 1e-2) + " and " +
           branch + ", train for more updates, or use a COSINE schedule of λ";
  }
  const bool constant = lambda.schedule == model::Schedule::kConstant;
  return std::string("raise ") + (constant ? "lambda.value" : "lambda.end") +
         now(constant ? lambda.value : lambda.end) + " and " + branch +
         ", or train for more updates";
}

// The same the other way round, for λ alone.
std::string weaker_lambda(const JobSpec& spec) {
  const auto& lambda = spec.dex.lambda;
  if (spec.dex.learns_lambda()) {
    return "a lower lambda_learning_rate" + now(spec.hyperparameters.lambda_learning_rate);
  }
  const bool constant = lambda.schedule == model::Schedule::kConstant;
  return constant ? "a lower lambda.value" + now(lambda.value)
                  : "a lower lambda.end" + now(lambda.end);
}

// The rate of what is trained beside λ: of the branch where nothing else is.
std::string lower_rate(const JobSpec& spec) {
  const Hyperparameters& rates = spec.hyperparameters;
  return spec.dex.train == model::Train::kDexOnly
             ? "a lower branch_learning_rate" + now(rates.branch_learning_rate)
             : "a lower learning_rate" + now(rates.learning_rate);
}

size_t outliers(const std::vector<double>& losses) {
  const double median = quantile_of(losses, 0.5);
  std::vector<double> deviations;
  for (const double loss : losses) deviations.push_back(std::abs(loss - median));
  const double limit = median + 6 * quantile_of(deviations, 0.5);
  return static_cast<size_t>(
      std::count_if(losses.begin(), losses.end(), [&](double loss) { return loss > limit; }));
}

}  // namespace

double branch_reach(const JobSpec& spec, const Resolved& resolved, int64_t width) {
  const double sum = rate_sum(spec, resolved);
  const double lambda = lambda_reach(spec, sum);
  const double entry = spec.hyperparameters.branch_learning_rate * sum;  // of w_d, or a gate
  if (spec.dex.form == model::Form::kUniformMap) return lambda * entry;
  if (spec.dex.w_d_init == model::BranchInit::kLinear) return 0.58 * lambda;
  return lambda * std::sqrt(static_cast<double>(width)) * entry;
}

std::optional<Advice> branch_out_of_reach(const JobSpec& spec, const Resolved& resolved,
                                          int64_t width) {
  // The estimate is for an identity start, of w_d or of uniform_map's gates; a bottleneck's two
  // factors move together and reach further.
  const bool estimated = spec.dex.has_map() || spec.dex.form == model::Form::kUniformMap;
  if (!estimated || spec.dex.start == model::Start::kLiteral) return std::nullopt;
  const double reach = branch_reach(spec, resolved, width);
  if (reach >= kReachWanted) return std::nullopt;
  const double sum = rate_sum(spec, resolved);
  return Advice{"branch_out_of_reach",
                "λ can reach " + number_text(lambda_reach(spec, sum)) + " in " +
                    std::to_string(resolved.updates) + " updates, the branch's share of O about " +
                    number_text(reach) + ", so it will be weak at the end",
                stronger_branch(spec)};
}

std::optional<Advice> ineffective(const evaluate::BranchEffect& effect, const JobSpec& spec,
                                  const Resolved& resolved, bool held_out) {
  using Verdict = evaluate::BranchEffect::Verdict;
  if (effect.verdict != Verdict::kInert && effect.verdict != Verdict::kWeak) return std::nullopt;
  return Advice{effect.verdict == Verdict::kInert ? "inert" : "weak",
                "the branch's share of O is " + number_text(effect.value) +
                    " at the end, where λ can reach " +
                    number_text(lambda_reach(spec, rate_sum(spec, resolved))) +
                    "; without it the " + (held_out ? "held-out" : "training") + " loss would be " +
                    number_text(std::abs(effect.ce_delta)) +
                    (effect.ce_delta < 0 ? " lower" : " higher"),
                stronger_branch(spec) + "; compare with kvo_only"};
}

Advice start_not_identity(double loss_change) {
  return {"start_not_identity",
          "the literal start changes the loss of the base by " + number_text(loss_change) +
              " before the first update",
          "use start IDENTITY unless this is what you study"};
}

std::optional<Advice> degraded(double base_loss, double valid_loss, int64_t step,
                               const JobSpec& spec, const Resolved& resolved,
                               double selected_ratio) {
  if (step * 4 < resolved.anneal_steps || valid_loss <= kDegradedRatio * base_loss)
    return std::nullopt;
  Advice advice{"degraded",
                "held-out loss " + number_text(valid_loss) + " at step " + std::to_string(step) +
                    ", base " + number_text(base_loss),
                lower_rate(spec)};
  if (spec.heads.criterion == evaluate::Criterion::kThreshold) {
    const double direction = selected_ratio > 0.5 ? 1 : -1;
    advice.evidence += "; " + number_text(100 * selected_ratio) +
                       " % of the heads are adapted (tau " + number_text(spec.heads.tau) +
                       ", eta " + number_text(spec.heads.eta) + ")";
    // A contribution is never below 0, so neither is a threshold on it.
    const double eta = std::max(0.0, spec.heads.eta - 0.01 * direction);
    advice.suggestion = "tau " + number_text(spec.heads.tau + 0.2 * direction) + " and eta " +
                        number_text(eta) + "; then " + weaker_lambda(spec) + "; then " +
                        lower_rate(spec);
  }
  return advice;
}

std::optional<Advice> overfitting(const std::vector<double>& valid_losses,
                                  const std::vector<double>& train_losses, const JobSpec& spec) {
  if (valid_losses.size() < 4 || train_losses.size() < 3) return std::nullopt;
  const double* valid = valid_losses.data() + valid_losses.size() - 4;
  const double* train = train_losses.data() + train_losses.size() - 3;
  const bool rising = valid[1] > valid[0] && valid[2] > valid[1] && valid[3] > valid[2];
  const bool falling = train[1] < train[0] && train[2] < train[1];
  if (!rising || !falling) return std::nullopt;
  // Rates of their own for K, V, O and for the branch, where they would be lower ones.
  constexpr double kBaseRate = 5e-5;
  const bool separate =
      spec.dex.train == model::Train::kKvoDex && spec.hyperparameters.learning_rate > kBaseRate;
  const std::string rates = separate
                                ? "separate rates (learning_rate 5e-5, branch_learning_rate 1e-4)"
                                : lower_rate(spec);
  return Advice{"overfitting",
                "held-out loss rose three times running to " + number_text(valid[3]) +
                    " while training loss fell to " + number_text(train[2]),
                rates + ", fewer passes, or the best checkpoint"};
}

std::optional<Advice> unstable(const std::vector<double>& losses, const std::vector<double>& norms,
                               const JobSpec& spec, const Resolved& resolved) {
  if (losses.size() < kUnstableWindow || norms.size() < kUnstableWindow) return std::nullopt;
  const size_t spikes = outliers(losses);
  const double median_norm = quantile_of(norms, 0.5);
  const double ratio = median_norm > 0 ? quantile_of(norms, 0.99) / median_norm : 0;
  if (spikes < 3 && ratio <= 10) return std::nullopt;
  Advice advice{"unstable",
                std::to_string(spikes) +
                    " loss spikes in 50 updates, p99/p50 of the gradient norm " +
                    number_text(ratio),
                lower_rate(spec)};
  const int64_t longer =
      std::min(resolved.updates, std::max<int64_t>(5000, 2 * resolved.anneal_steps));
  if (anneals(spec) && longer > resolved.anneal_steps) {
    advice.evidence += "; the annealing may be too fast";
    advice.suggestion =
        "anneal_steps " + annealing_text(longer, resolved.updates) + ", or " + advice.suggestion;
  }
  return advice;
}

std::vector<Advice> calibration_advice(const Calibration& asked,
                                       const evaluate::HeadScores& scores) {
  std::vector<Advice> out;
  if (scores.sequences == 0) return out;
  if (scores.sequences < asked.n_sequences) {
    out.push_back({"calibration_small",
                   std::to_string(scores.sequences) + " sequences with " +
                       std::to_string(scores.tokens) + " tokens were measured, " +
                       std::to_string(asked.n_sequences) + " of " +
                       std::to_string(asked.seq_length) + " tokens were asked for",
                   "more rows"});
  }
  if (scores.short_sequences) {
    out.push_back({"calibration_short",
                   "no calibration row is longer than skip_rows " +
                       std::to_string(asked.skip_rows) +
                       ", so rows from 1 on are counted and entropy is H/ln(i+1)",
                   "longer rows, or a smaller skip_rows"});
  }
  return out;
}

std::optional<Advice> selection_share(const evaluate::SelectionRule& rule,
                                      const evaluate::HeadScores& scores, double ratio) {
  if (rule.criterion != evaluate::Criterion::kThreshold) return std::nullopt;
  if (ratio > 0 && ratio <= 0.6) return std::nullopt;
  const auto other = evaluate::nearest_thresholds(rule, scores);
  return Advice{ratio > 0 ? "selection_wide" : "selection_empty",
                number_text(100 * ratio) + " % of the heads are selected by tau " +
                    number_text(rule.tau) + ", eta " + number_text(rule.eta),
                other ? "tau " + number_text(other->tau) + " and eta " + number_text(other->eta) +
                            ", which select " + number_text(100 * other->ratio) + " %"
                      : "criterion ENTROPY, since no thresholds near these select 10 to 50 %"};
}

}  // namespace dex::train
