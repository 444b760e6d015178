#include "worker/train/advice.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace dex::train {
namespace {

constexpr double kReachWanted = 0.02, kDegradedRatio = 1.005;
constexpr size_t kUnstableWindow = 50;

std::string text(double value) {
  std::ostringstream out;
  out.precision(4);
  out << value;
  return out.str();
}

// Linear interpolation between the two nearest ranks.
double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(rank);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (rank - static_cast<double>(low)) * (values[high] - values[low]);
}

double lambda_reach(const JobSpec& spec, double factor_sum) {
  const auto& lambda = spec.dex.lambda;
  if (spec.dex.learns_lambda()) {
    return std::abs(lambda.learn_init) + spec.hyperparameters.lambda_learning_rate * factor_sum;
  }
  if (lambda.schedule == model::Schedule::kConstant) return std::abs(lambda.value);
  return std::max(std::abs(lambda.start), std::abs(lambda.end));
}

size_t outliers(const std::vector<double>& losses) {
  const double median = percentile(losses, 0.5);
  std::vector<double> deviations;
  for (const double loss : losses) deviations.push_back(std::abs(loss - median));
  const double limit = median + 6 * percentile(deviations, 0.5);
  return static_cast<size_t>(
      std::count_if(losses.begin(), losses.end(), [&](double loss) { return loss > limit; }));
}

}  // namespace

double branch_reach(const JobSpec& spec, const Resolved& resolved, int64_t head_dim) {
  const double sum =
      learning_rate_reach(spec.hyperparameters.schedule, resolved.updates, resolved.warmup);
  const double lambda = lambda_reach(spec, sum);
  if (spec.dex.w_d_init == model::BranchInit::kLinear) return 0.58 * lambda;
  return lambda * std::sqrt(static_cast<double>(head_dim)) *
         spec.hyperparameters.branch_learning_rate * sum;
}

std::optional<Advice> branch_out_of_reach(const JobSpec& spec, const Resolved& resolved,
                                          int64_t head_dim) {
  // The estimate is for w_d; a bottleneck's two factors move together and reach further.
  if (!spec.dex.has_branch() || spec.dex.projection == model::Projection::kBottleneck)
    return std::nullopt;
  const double reach = branch_reach(spec, resolved, head_dim);
  if (reach >= kReachWanted) return std::nullopt;
  const double sum =
      learning_rate_reach(spec.hyperparameters.schedule, resolved.updates, resolved.warmup);
  return Advice{"branch_out_of_reach",
                "λ can reach " + text(lambda_reach(spec, sum)) + " in " +
                    std::to_string(resolved.updates) + " updates, the branch's share of O about " +
                    text(reach) + ": it will be weak at the end",
                "raise lambda_learning_rate (1e-2) and branch_learning_rate (1e-3), train longer, "
                "or use a COSINE "
                "schedule of λ"};
}

std::optional<Advice> degraded(double base_loss, double valid_loss, int64_t step,
                               const JobSpec& spec, const Resolved& resolved,
                               double selected_ratio) {
  if (step * 4 < resolved.anneal_steps || valid_loss <= kDegradedRatio * base_loss)
    return std::nullopt;
  Advice advice{"degraded",
                "held-out loss " + text(valid_loss) + " at step " + std::to_string(step) +
                    ", base " + text(base_loss),
                "lower learning_rate"};
  if (spec.heads.criterion == evaluate::Criterion::kThreshold) {
    const double direction = selected_ratio > 0.5 ? 1 : -1;
    advice.evidence += "; " + text(100 * selected_ratio) + " % of the heads are adapted (tau " +
                       text(spec.heads.tau) + ", eta " + text(spec.heads.eta) + ")";
    advice.suggestion = "try tau " + text(spec.heads.tau + 0.2 * direction) + " and eta " +
                        text(spec.heads.eta - 0.01 * direction) +
                        "; then a lower end of λ, then a lower learning_rate";
  }
  return advice;
}

std::optional<Advice> overfitting(const std::vector<double>& valid_losses,
                                  const std::vector<double>& train_losses) {
  if (valid_losses.size() < 4 || train_losses.size() < 3) return std::nullopt;
  const double* valid = valid_losses.data() + valid_losses.size() - 4;
  const double* train = train_losses.data() + train_losses.size() - 3;
  const bool rising = valid[1] > valid[0] && valid[2] > valid[1] && valid[3] > valid[2];
  const bool falling = train[1] < train[0] && train[2] < train[1];
  if (!rising || !falling) return std::nullopt;
  return Advice{
      "overfitting",
      "held-out loss rose three times running to " + text(valid[3]) +
          " while training loss fell to " + text(train[2]),
      "use separate rates (base 5e-5, branch 1e-4), fewer passes, or the best checkpoint"};
}

std::optional<Advice> unstable(const std::vector<double>& losses, const std::vector<double>& norms,
                               const Resolved& resolved) {
  if (losses.size() < kUnstableWindow || norms.size() < kUnstableWindow) return std::nullopt;
  const size_t spikes = outliers(losses);
  const double median_norm = percentile(norms, 0.5);
  const double ratio = median_norm > 0 ? percentile(norms, 0.99) / median_norm : 0;
  if (spikes < 3 && ratio <= 10) return std::nullopt;
  const int64_t longer =
      std::min(resolved.updates, std::max<int64_t>(5000, 2 * resolved.anneal_steps));
  return Advice{"unstable",
                std::to_string(spikes) +
                    " loss spikes in 50 updates, p99/p50 of the gradient norm " + text(ratio),
                "annealing may be too fast: anneal_steps " + std::to_string(longer) +
                    ", or a lower learning_rate"};
}

std::optional<Advice> selection_share(const evaluate::SelectionRule& rule,
                                      const evaluate::HeadScores& scores, double ratio) {
  if (rule.criterion != evaluate::Criterion::kThreshold) return std::nullopt;
  if (ratio > 0 && ratio <= 0.6) return std::nullopt;
  // The nearest threshold, in steps of 0.1, that gives a share between 10 and 50 %.
  evaluate::SelectionRule other = rule;
  const auto layers = static_cast<int32_t>(scores.entropy_nats.size());
  const auto heads = static_cast<int32_t>(scores.entropy_nats.at(0).size());
  double found = 0;
  for (int step = 1; step <= 40 && (found < 0.1 || found > 0.5); ++step) {
    other.tau = rule.tau + 0.1 * step * (ratio > 0.6 ? 1 : -1);
    other.eta = ratio > 0.6 ? rule.eta / (1 + 0.1 * step) : rule.eta * (1 + 0.1 * step);
    found = evaluate::selected_ratio(evaluate::select_heads(other, scores, layers, heads), heads);
  }
  return Advice{ratio > 0 ? "selection_wide" : "selection_empty",
                text(100 * ratio) + " % of the heads are selected by tau " + text(rule.tau) +
                    ", eta " + text(rule.eta),
                "tau " + text(other.tau) + " and eta " + text(other.eta) + " select " +
                    text(100 * found) + " %"};
}

}  // namespace dex::train
