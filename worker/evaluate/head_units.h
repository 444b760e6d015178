#pragma once

#include <span>
#include <vector>

namespace dex::evaluate {

// The scales on which a threshold is compared with a head's score (method.md §4.8). Each is taken
// over the heads of one layer; a threshold without its unit means nothing.
enum class EntropyUnit { kNats, kNormalized, kZscore, kQuantile };
enum class ContributionUnit { kL2norm, kShare, kRelmax };

// (H − mean) / s.d. with the population s.d.; 0 for every head if s.d. = 0.
std::vector<double> zscore(std::span<const double> scores);
// (heads with a lower score) / (H − 1); 0 for a single head.
std::vector<double> quantile(std::span<const double> scores);

// Entropies of one layer in `unit`. `nats` and `normalized` are the two means of method.md §4.1;
// zscore and quantile are taken of `nats`.
std::vector<double> entropy_in_unit(std::span<const double> nats,
                                    std::span<const double> normalized, EntropyUnit unit);
// Importances of one layer in `unit`: I/‖I‖₂, I/ΣI or I/max I; all 0 if every importance is 0.
std::vector<double> contribution_in_unit(std::span<const double> importance, ContributionUnit unit);

}  // namespace dex::evaluate
