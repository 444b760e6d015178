#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace dex::kernels {

// Products of large fp32 matrices, by the library that is quickest on the processor at hand: the
// one of LibTorch (MKL), which is also the reference, or OpenBLAS, which comes as a file beside
// LibTorch's and is loaded by name only when it is to be used.
enum class Gemm { kLibTorch, kOpenBlas };

struct GemmChoice {
  Gemm gemm = Gemm::kLibTorch;
  std::string why;  // one line for the log
};

// "libtorch", "openblas" (and "auto", of choose_gemm).
const char* name(Gemm gemm);

// For "auto": MKL on Intel's processors, OpenBLAS on all others, where MKL does not choose its best
// code. A table and not a measurement, so that a job gives the same bits each time it runs on a
// machine. Throws std::runtime_error for another word, naming it.
GemmChoice choose_gemm(const std::string& asked, bool is_intel);
bool on_intel();

// Makes all products of this process from now on go through it; before there are threads that call
// them. Returns what is used and why: LibTorch's, where OpenBLAS' file is not there.
GemmChoice use_gemm(const GemmChoice& choice);
Gemm gemm_in_use();

// a [m, k] · b [k, n] → [m, n], without gradient. Either may be a transposed view. Through the
// library in use where all are fp32 and there is enough to multiply, else LibTorch's mm. The same
// bits for the same arguments, library and number of threads.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// c = a·b, or c += a·b. c [m, n], rows contiguous.
void product_into(at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add = false);

// How a product's [m, n] is cut among threads: `rows` × `columns` parts, about square, because each
// thread packs what its part reads.
struct GemmGrid {
  int64_t rows = 1, columns = 1;
};
GemmGrid gemm_grid(int64_t m, int64_t n, int64_t threads);

}  // namespace dex::kernels
