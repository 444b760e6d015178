#include "client/cli/study_findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "client/cli/study_learning.h"
#include "client/cli/terminal.h"

namespace dex::cli {

namespace {

using Effect = v1::BranchEffect;

constexpr int kLossDigits = 4;
constexpr double kPaperTokens = 887e6;  // method.md §2.3
constexpr Effect::Verdict kVerdicts[] = {Effect::VERDICT_INERT, Effect::VERDICT_WEAK,
                                         Effect::VERDICT_ACTIVE};

bool has_branch(const Effect& effect) {
  return std::find(std::begin(kVerdicts), std::end(kVerdicts), effect.verdict()) !=
         std::end(kVerdicts);
}

// VERDICT_INERT → "INERT", as method.md and the job's events write it.
std::string verdict_name(Effect::Verdict verdict) {
  const std::string name = Effect::Verdict_Name(verdict);
  return name.substr(name.find('_') + 1);
}

std::string two_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

// Runs of a method whose branch came out as `verdict`.
struct VerdictGroup {
  std::vector<uint64_t> seeds;
  double ratio = 0, ce_delta = 0;  // means
};

VerdictGroup group_of(const MethodSummary& row, Effect::Verdict verdict) {
  VerdictGroup group;
  for (const auto& [seed, figures] : row.by_seed) {
    if (figures.branch.verdict() != verdict) continue;
    group.seeds.push_back(seed);
    group.ratio += figures.branch.value();
    group.ce_delta += figures.branch.ce_delta();
  }
  const auto n = static_cast<double>(std::max<size_t>(1, group.seeds.size()));
  group.ratio /= n;
  group.ce_delta /= n;
  return group;
}

// "INERT, r 4e-05"; "INERT ×2, r 0.0011; WEAK ×1, r 0.0031" where seeds differ.
std::string branch_cell(const MethodSummary& row) {
  std::vector<std::pair<std::string, VerdictGroup>> groups;
  for (const auto verdict : kVerdicts) {
    const auto group = group_of(row, verdict);
    if (!group.seeds.empty()) groups.emplace_back(verdict_name(verdict), group);
  }
  std::string cell;
  for (const auto& [name, group] : groups) {
    cell += (cell.empty() ? "" : "; ") + name;
    if (groups.size() > 1) cell += " ×" + std::to_string(group.seeds.size());
    cell += ", r " + two_digits(group.ratio);
  }
  return cell;
}

std::string tokens_cell(const MethodSummary& row) {
  int64_t least = row.trained_tokens;
  for (const auto& [seed, figures] : row.by_seed) least = std::min(least, figures.trained_tokens);
  const std::string most = std::to_string(row.trained_tokens);
  return least == row.trained_tokens ? most : std::to_string(least) + "–" + most;
}

std::string range_cell(const MethodSummary& row) {
  std::vector<double> ranges;
  for (const auto& [seed, figures] : row.by_seed) {
    if (figures.gradient_range) ranges.push_back(*figures.gradient_range);
  }
  return ranges.empty() ? "?" : fixed(median(ranges), 2);
}

std::string steps_cell(const MethodSummary& row) {
  std::string cell;
  for (const auto& [seed, figures] : row.by_seed) {
    cell += cell.empty() ? "" : ", ";
    cell += !figures.compared ? "?" : figures.steps ? std::to_string(*figures.steps) : "–";
  }
  return cell;
}

bool plans(const StudyPlan& plan, const std::string& method) {
  return std::find(plan.methods.begin(), plan.methods.end(), method) != plan.methods.end();
}

void write_figures(std::ostream& out, const StudyPlan& plan,
                   const std::vector<MethodSummary>& rows) {
  const bool steps = plans(plan, kControl);
  out << "| method | branch | trained tokens | gradient range |"
      << (steps ? " steps to `kvo_only` |" : "") << "\n| --- | --- | --- | --- |"
      << (steps ? " --- |" : "") << "\n";
  for (const auto& row : rows) {
    if (row.loss.n == 0) continue;
    out << "| `" << row.method << "` | " << branch_cell(row) << " | " << tokens_cell(row) << " | "
        << range_cell(row) << " |";
    if (steps) out << (row.method == kControl ? "" : " " + steps_cell(row)) << " |";
    out << "\n";
  }
  out << "\nBranch: its share r = ‖λD‖/‖O‖ of the heads' output on held-out rows, mean over seeds; "
         "INERT below 0.002, WEAK below 0.02, thresholds of our own. Gradient range: "
         "(p95 − p5)/p50 of the gradient's norm before clipping, over the updates after warm-up, "
         "median over seeds; small is steady.";
  if (steps) {
    out << " Steps: the first update, from 0, whose running average of the training loss (0.98 of "
           "it kept an update) is below the last one of `kvo_only`, seed by seed; –: never, ?: not "
           "all losses of both runs are known.";
  }
  out << "\n\n";
}

std::string list_of(const std::vector<uint64_t>& seeds) {
  std::string list = seeds.size() == 1 ? "seed " : "seeds ";
  for (size_t i = 0; i < seeds.size(); ++i) list += (i ? ", " : "") + std::to_string(seeds[i]);
  return list;
}

// What the branch does where it does little.
void write_weak_branches(std::ostream& out, const MethodSummary& row) {
  for (const auto verdict : {Effect::VERDICT_INERT, Effect::VERDICT_WEAK}) {
    const auto group = group_of(row, verdict);
    if (group.seeds.empty()) continue;
    out << "- `" << row.method << "`: the branch is " << verdict_name(verdict) << " (r "
        << two_digits(group.ratio) << ", " << list_of(group.seeds)
        << "); without it the held-out loss would be ";
    if (group.ce_delta == 0) {
      out << "the same.\n";
    } else {
      out << two_digits(std::abs(group.ce_delta)) << (group.ce_delta < 0 ? " lower" : " higher")
          << ".\n";
    }
  }
}

void write_noise_floor(std::ostream& out, const MethodSummary& row) {
  if (row.against_partner.n == 0) return;
  out << "- Noise floor, `" << row.method << "` against `" << row.noise_partner
      << "`: " << text(row.against_partner, kLossDigits)
      << " nats a token. The two are the same class of functions, so what differs is noise.\n";
}

// Names methods and their tokens for every seed where the budgets were not equal.
void write_budgets(std::ostream& out, const StudyPlan& plan,
                   const std::vector<MethodSummary>& rows) {
  for (const uint64_t seed : plan.seeds) {
    std::string list;
    bool differ = false;
    std::optional<int64_t> tokens;
    for (const auto& row : rows) {
      const auto found = row.by_seed.find(seed);
      if (found == row.by_seed.end()) continue;
      const int64_t trained = found->second.trained_tokens;
      differ = differ || (tokens && *tokens != trained);
      tokens = trained;
      list += (list.empty() ? "`" : ", `") + row.method + "` " + std::to_string(trained);
    }
    if (differ) {
      out << "- seed " << seed << ": the budgets are not equal, trained tokens are " << list
          << ".\n";
    }
  }
}

void write_conclusions(std::ostream& out, const StudyPlan& plan,
                       const std::vector<MethodSummary>& rows) {
  int64_t tokens = 0;
  for (const auto& row : rows) tokens = std::max(tokens, row.trained_tokens);
  out << "\n";
  if (plans(plan, kControl)) {
    out << "`" << kControl
        << "` is the same training of K, V and O without a branch: it answers how much of a gain "
           "over the base is ordinary attention fine-tuning. ";
  }
  if (plans(plan, "dex:dex_only"))
    out << "`dex:dex_only` trains the branch alone on the frozen base. ";
  out << "Nothing smaller than the spread over seeds is called a difference.";
  if (static_cast<double>(tokens) < kPaperTokens) {
    out << " Runs of " << tokens
        << " tokens neither confirm nor refute what is claimed for the paper's regime of 887 M "
           "tokens.";
  }
  out << "\n";
}

}  // namespace

SeedFigures figures_of(const RunResult& result, const RunResult* control) {
  SeedFigures figures;
  figures.trained_tokens = result.trained_tokens;
  figures.branch = result.branch;
  figures.gradient_range = result.gradient_range;
  figures.train_loss = final_average_loss(result.train_losses);
  if (!control || control->run.method == result.run.method || !figures.train_loss) return figures;
  const auto target = final_average_loss(control->train_losses);
  if (!target) return figures;
  figures.compared = true;
  figures.steps = steps_to_loss(result.train_losses, *target);
  return figures;
}

void write_findings(std::ostream& out, const StudyPlan& plan,
                    const std::vector<MethodSummary>& rows) {
  const auto succeeded = [](const MethodSummary& row) { return row.loss.n > 0; };
  if (std::none_of(rows.begin(), rows.end(), succeeded)) return;
  out << "\n";
  write_figures(out, plan, rows);
  for (const auto& row : rows) {
    write_weak_branches(out, row);
    write_noise_floor(out, row);
  }
  write_budgets(out, plan, rows);
  write_conclusions(out, plan, rows);
}

void add_figures(const RunResult& result, const std::vector<MethodSummary>& rows,
                 nlohmann::json& run) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const MethodSummary& each) {
    return each.method == result.run.method;
  });
  if (row == rows.end()) return;
  const auto found = row->by_seed.find(result.run.seed);
  if (found == row->by_seed.end()) return;
  const SeedFigures& figures = found->second;
  if (has_branch(figures.branch)) {
    run["branch_effect"] = {{"verdict", verdict_name(figures.branch.verdict())},
                            {"value", figures.branch.value()},
                            {"ce_delta", figures.branch.ce_delta()},
                            {"tokens", figures.branch.tokens()}};
  }
  if (figures.gradient_range) run["gradient_range"] = *figures.gradient_range;
  if (figures.train_loss) run["train_loss_average"] = *figures.train_loss;
  if (!figures.compared) return;
  run["steps_to_kvo_only"] = nullptr;
  if (figures.steps) run["steps_to_kvo_only"] = *figures.steps;
}

}  // namespace dex::cli
