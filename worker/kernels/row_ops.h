#pragma once

#include <cstdint>
#include <span>

#include "worker/kernels/weight_view.h"

namespace dex::kernels {

// The engine's small steps between two matrix products, on plain rows of fp32. No allocation, one
// thread each.

// y = x / sqrt(mean(x²) + eps) · weight (a [columns] vector in its stored type) for one row. y may
// be x.
void rms_norm_row(const float* x, const WeightView& weight, float eps, float* y);

// Rotates the pairs (i, i + d/2) of one head in place; cos and sin [d/2] of the row's position.
void rope_head(float* head, int64_t head_dim, const float* cos, const float* sin);

// gate ← silu(gate)·up, `count` elements.
void silu_mul(float* gate, const float* up, int64_t count);

// One row of a weight, widened: the embedding of a token.
void widen_row(const WeightView& weight, int64_t row, float* y);

// Adds a stored bias [columns] to columns [begin, end) of y.
void add_bias(const WeightView& bias, int64_t begin, int64_t end, float* y);

// log Σ exp(x) with the largest element taken out first; NaN or +Inf in x gives a value that is not
// finite.
double log_sum_exp(std::span<const float> x);

// x ← exp(scale·(x − maximum)); returns the sum, in double.
double exp_scaled(std::span<float> x, float maximum, float scale);

// Index of the largest element, the lowest index among equals; NaN never wins.
int64_t arg_max(std::span<const float> x);

}  // namespace dex::kernels
