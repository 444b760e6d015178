#pragma once

#include <cstdint>
#include <optional>
#include <string>

// λ as a function of the number of updates done (method.md §2.2, §3.3), and the schedules that
// would never let a branch move (§2.5). In this room for the same reason as method_constants.h: the
// scheduler refuses a dead job by the numbers that the trainer computes with.
namespace dex::base {

enum class Schedule { kPaperEq4, kSeedCosine, kConstant, kLearned };  // §3.3

struct LambdaOptions {
  Schedule schedule = Schedule::kPaperEq4;
  int64_t anneal_steps = 0;    // T
  std::optional<double> init;  // paper_eq4: λ_init of every layer; nothing: by depth (§2.2)
  double learn_init = 0;       // start of λ_learn: paper_eq4, learned
  double start = 0, end = 0;   // seed_cosine
  double value = 0;            // constant
};

// λ_init(l) = 0.8 − 0.6·exp(−0.3·l), l from 0 (§2.2).
double lambda_init(int64_t layer);

// λ = fixed + learned·λ_learn at update t. `learned` is α(t), the factor of ∂λ/∂λ_learn; 0 for
// schedules that learn nothing.
struct LambdaTerms {
  double fixed = 0;
  double learned = 0;
  [[nodiscard]] double at(double lambda_learn) const { return fixed + learned * lambda_learn; }
};
LambdaTerms lambda_terms(const LambdaOptions& options, int64_t layer, int64_t t);

// The same as one number (§2.2, §3.3). Inside update u use t = u; what is published after n updates
// uses t = n.
double lambda_at(const LambdaOptions& options, int64_t layer, int64_t t, double lambda_learn);

// What a branch is before the first update.
struct BranchStart {
  bool zero_difference = true;  // D = 0, whatever the tokens
  bool has_map = true;          // it has a w_d, whose start `linear` is a way out
  bool goes_on = false;         // it is an adapter's, and so is its λ
};

// The run by which a schedule is judged where nobody has counted the updates yet: long enough that
// what is dead in it is dead in every shorter one, a T that is a share of it included.
inline constexpr int64_t kManyUpdates = 1'000'000;

// Why the branch would get no gradient at any of the updates u < `updates`, with the way out
// (§2.5); empty: it gets one. Decided by the values that the run visits: w_d and gates move where
// λ(u) ≠ 0, λ_learn where α(u) ≠ 0 and D ≠ 0. Without `updates` (not known yet) it is dead only if
// it is so in a run of kManyUpdates, by which the caller resolves T then.
std::string dead_point(const LambdaOptions& options, const BranchStart& start,
                       std::optional<int64_t> updates);

}  // namespace dex::base
