#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace dex::evaluate {

// `dex-engine heads`: the head analyses of method.md §4 on given token ids, without a server.
struct HeadsCommand {
  std::filesystem::path model;        // Hugging Face folder
  std::filesystem::path adapter;      // empty: the base
  std::filesystem::path tokens_file;  // token_sequences.h
  int32_t i_min = 32;         // ≥ 1; see first_counted_row() for sequences without such rows
  int threads = 0;            // 0: all cores
  std::string dtype = "f32";  // of the weights; or f64, without hessian: nothing is rounded to fp32
  std::vector<std::string> measures;  // some of head_measures(); empty: entropy, importance
};

// entropy, importance, cosine, cka, sparsity, hessian (minutes a sequence).
const std::vector<std::string>& head_measures();

// Measures in fp32 (or fp64) whatever the weights are stored in; importance, and entropy where both
// are asked for, in fp64 over fp32's weights too (HeadScoreOptions::exact). Writes one line of JSON
// to `out`:
//   layers, heads, sequences, tokens, i_min (as used), entropy_unit ("nats", or "normalized" when
//   no sequence has more than i_min ids; then i_min is 1)
//   entropy [L][H], entropy_of ("A", or "|M| renormalised" where maps are signed) · importance
//   [L][H] · cosine {mean [L], pairs [L][H][H]} · cka {mean, pairs, unbiased_mean, unbiased_pairs,
//   positions, positions_per_dimension}: null where a value is not defined
//   sparsity {epsilon, share, negative_share, negative_mass [L][H]} and, with an adapter of form
//   paper or head_mean whose P is linear, removed_of ("head", or "layer" of one map over all
//   heads), removed_below_zero, removed_below_half [L][H], [L][1]: null where no branch acts
//   hessian {eigenvalues, converged [sequences], not_settled, histogram {low, high, counts},
//   negative_share, parameters}: loss_curvature.h
// H: the heads that have one map and one output each; of models that subtract maps, the pairs.
// What needs a word (lowered i_min, signed maps, too few tokens for CKA, eigenvalues that did not
// settle) goes to `log`. Computes in the calling
// thread with LibTorch's pool; throws std::runtime_error with one sentence.
void heads(const HeadsCommand& command, std::ostream& out, std::ostream& log);

}  // namespace dex::evaluate
