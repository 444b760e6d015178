#pragma once

#include <cstdint>

#include "worker/kernels/linear.h"
#include "worker/kernels/weight_view.h"

namespace dex::kernels {

// y = x̂·Ŵᵀ for weights in four bits: groups of 32 inputs of an output share a scale and a minimum
// in bf16, w[n, k] ≈ scale·q[n, k] + minimum with q in 0 … 15, five bits a weight in all. With a
// minimum of its own a group loses less than with a symmetric scale, a sixth of the error for
// SmolLM2's embedding, and weights that were in Q4_1 of llama.cpp before come back whole.
//
// Activations are rounded to eight bits in the same groups, x[k] ≈ scale·q[k], so that a group is a
// dot product of bytes: one instruction for 64 products where the processor has VNNI, two elsewhere
// on x86. Widening to fp32 instead costs more cycles than the memory needs to deliver four bits.
// Whole numbers are summed exactly, so every instruction set makes the same of a group; groups are
// summed in fp32, in their order. One kernel for few rows and many: a row's result depends on the
// row and the weights only.
inline constexpr int64_t kInt4Group = 32;
inline constexpr int64_t kInt4Outputs = 16;  // of a block

// 16 outputs × 32 inputs, five cache lines. One stream of blocks serves 16 outputs: [⌈rows/16⌉,
// ⌈columns/32⌉] blocks are a weight. What lies beyond its rows and columns is 0 or not read.
struct alignas(64) Int4Block {
  uint16_t scale[kInt4Outputs], minimum[kInt4Outputs];  // bf16
  // q[c][4·n + j] has input 8·c + j of output n in its lower half, input 8·c + 4 + j in the upper.
  uint8_t q[4][4 * kInt4Outputs];
};
static_assert(sizeof(Int4Block) == 320);

// 32 neighbouring activations of a row. Not finite ones make `scale` NaN, and so what is computed.
struct Int8Group {
  float scale = 0;  // max |x| / 127
  float sum = 0;    // scale·Σq: what the minimum is multiplied by
  int8_t q[kInt4Group] = {};
};

[[nodiscard]] inline int64_t int4_groups(int64_t columns) {
  return (columns + kInt4Group - 1) / kInt4Group;
}
[[nodiscard]] inline int64_t int4_blocks(int64_t rows, int64_t columns) {
  return (rows + kInt4Outputs - 1) / kInt4Outputs * int4_groups(columns);
}

// Finite w [rows, columns] into int4_blocks(rows, columns). A weight is off by half a scale at
// most, and by what rounding scale and minimum to bf16 adds: 2⁻⁸ of the group's largest |w|.
void quantize_int4(const float* w, int64_t rows, int64_t columns, Int4Block* blocks);

// One row x [columns] into int4_groups(columns) groups; beyond `columns` they hold zeros.
void quantize_activations(const float* x, int64_t columns, Int8Group* groups);

// Whether the processor's dot products of four bytes (VNNI) are used where it has them.
enum class ByteProducts { kBest, kInPairs };

// Outputs [begin, end) of x [rows, int4_groups(w.columns)]; y as linear_few has it. w.number is
// kInt4. One thread.
void linear_int4(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                 float* y, int64_t y_stride, Store store,
                 ByteProducts products = ByteProducts::kBest);

// The formula with the same rounded weights and activations, summed in double: the oracle.
void linear_int4_plain(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin,
                       int64_t end, float* y, int64_t y_stride, Store store);

// Ŵ[row, column].
[[nodiscard]] float int4_weight(const WeightView& w, int64_t row, int64_t column);

}  // namespace dex::kernels
