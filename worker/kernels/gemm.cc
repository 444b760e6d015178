#include "worker/kernels/gemm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"

namespace dex::kernels {

namespace {

using at::Tensor;

// BLAS' sgemm: column-major, 32-bit sizes; the package puts scipy_ before every name.
using Sgemm = void (*)(const char* transpose_a, const char* transpose_b, const int32_t* m,
                       const int32_t* n, const int32_t* k, const float* alpha, const float* a,
                       const int32_t* lda, const float* b, const int32_t* ldb, const float* beta,
                       float* c, const int32_t* ldc);
constexpr const char* kOpenBlasFile = "libscipy_openblas.so";
// Below this, starting threads costs more than the better library saves.
constexpr int64_t kLeastWork = int64_t{1} << 21;
constexpr int64_t kPartStep = 16;  // a part's rows and columns are multiples of it, but the last

struct Library {
  Gemm gemm = Gemm::kLibTorch;
  Sgemm sgemm = nullptr;
};
Library& library() {
  static Library in_use;
  return in_use;
}

// Its threads are ours: it multiplies one part on the thread that calls it. Why not, where it can't
// be loaded.
std::optional<std::string> load_openblas(Sgemm* sgemm) {
  // By this program's own search path, where LibTorch's libraries lie.
  void* handle = ::dlopen(kOpenBlasFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return ::dlerror();
  auto* found = ::dlsym(handle, "scipy_sgemm_");
  auto* threads = ::dlsym(handle, "scipy_openblas_set_num_threads");
  if (found == nullptr || threads == nullptr)
    return std::string(kOpenBlasFile) + " lacks scipy_sgemm_ or scipy_openblas_set_num_threads";
  reinterpret_cast<void (*)(int)>(threads)(1);
  *sgemm = reinterpret_cast<Sgemm>(found);
  return std::nullopt;
}

// A matrix as BLAS sees it, which reads columns where we have rows.
struct Operand {
  char transposed = 'N';
  int32_t stride = 1;
};
// Nothing: neither rows nor columns lie side by side.
std::optional<Operand> operand(const Tensor& x) {
  const auto least = [](int64_t stride, int64_t size) {
    return static_cast<int32_t>(std::max<int64_t>(stride, std::max<int64_t>(1, size)));
  };
  if (x.stride(1) == 1 && x.stride(0) >= x.size(1))
    return Operand{'N', least(x.stride(0), x.size(1))};
  if (x.stride(0) == 1 && x.stride(1) >= x.size(0))
    return Operand{'T', least(x.stride(1), x.size(0))};
  return std::nullopt;
}

bool is_float_matrix(const Tensor& x) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  return x.dim() == 2 && x.scalar_type() == at::kFloat && x.is_cpu() && x.size(0) <= kMost &&
         x.size(1) <= kMost && x.stride(0) <= kMost && x.stride(1) <= kMost;
}

// [begin, end) of part `index` of `parts`.
std::pair<int64_t, int64_t> part_of(int64_t size, int64_t index, int64_t parts) {
  const int64_t steps = (size + kPartStep - 1) / kPartStep;
  const auto at = [&](int64_t i) { return std::min(size, steps * i / parts * kPartStep); };
  return {at(index), at(index + 1)};
}

// Whether the library in use has done it.
bool by_library(Tensor& c, const Tensor& a, const Tensor& b, bool add) {
  const Sgemm sgemm = library().sgemm;
  if (sgemm == nullptr || !is_float_matrix(a) || !is_float_matrix(b) || !is_float_matrix(c))
    return false;
  const int64_t m = a.size(0), n = b.size(1), depth = a.size(1);
  const auto left = operand(a), right = operand(b), out = operand(c);
  if (!left || !right || !out || out->transposed != 'N' || m * n * depth < kLeastWork) return false;
  const int64_t threads = std::max<int64_t>(1, at::get_num_threads());
  const GemmGrid grid = gemm_grid(m, n, threads);
  const auto *a_data = a.const_data_ptr<float>(), *b_data = b.const_data_ptr<float>();
  auto* c_data = c.mutable_data_ptr<float>();
  const float one = 1, beta = add ? 1 : 0;
  parallel_for(0, grid.rows * grid.columns, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      const auto [row, row_end] = part_of(m, part / grid.columns, grid.rows);
      const auto [column, column_end] = part_of(n, part % grid.columns, grid.columns);
      if (row == row_end || column == column_end) continue;
      // C = A·B by rows is Cᵀ = Bᵀ·Aᵀ by columns, and what lies by rows is its transpose by
      // columns.
      const auto columns = static_cast<int32_t>(column_end - column),
                 rows = static_cast<int32_t>(row_end - row), inner = static_cast<int32_t>(depth);
      sgemm(&right->transposed, &left->transposed, &columns, &rows, &inner, &one,
            b_data + column * b.stride(1), &right->stride, a_data + row * a.stride(0),
            &left->stride, &beta, c_data + row * c.stride(0) + column, &out->stride);
    }
  });
  return true;
}

void check_factors(const Tensor& a, const Tensor& b) {
  check(a.dim() == 2, "product", "a must be [m, k]", a);
  check(b.dim() == 2 && b.size(0) == a.size(1), "product", "b must be [k, n] with a's k", b);
}

}  // namespace

const char* name(Gemm gemm) {
  return gemm == Gemm::kOpenBlas ? "openblas" : "libtorch";
}

GemmChoice choose_gemm(const std::string& asked, bool is_intel) {
  for (const Gemm gemm : {Gemm::kLibTorch, Gemm::kOpenBlas}) {
    if (asked == name(gemm)) return {gemm, "asked for"};
  }
  if (asked != "auto")
    throw std::runtime_error("[gemm] library must be auto, libtorch or openblas, got \"" + asked +
                             "\"");
  if (is_intel) return {Gemm::kLibTorch, "MKL is quickest on processors of Intel"};
  return {Gemm::kOpenBlas, "MKL chooses slower code on processors that are not Intel's"};
}

bool on_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

GemmChoice use_gemm(const GemmChoice& choice) {
  Library next{.gemm = choice.gemm};
  if (choice.gemm == Gemm::kOpenBlas) {
    if (const auto fault = load_openblas(&next.sgemm)) {
      library() = {};
      return {Gemm::kLibTorch, "OpenBLAS can't be loaded: " + *fault};
    }
  }
  library() = next;
  return choice;
}

Gemm gemm_in_use() {
  return library().gemm;
}

GemmGrid gemm_grid(int64_t m, int64_t n, int64_t threads) {
  GemmGrid best{.rows = 1, .columns = threads};
  const auto packed = [&](const GemmGrid& grid) {
    return (m + grid.rows - 1) / grid.rows + (n + grid.columns - 1) / grid.columns;
  };
  for (int64_t rows = 1; rows <= threads; ++rows) {
    const GemmGrid grid{.rows = rows, .columns = threads / rows};
    if (threads % rows == 0 && packed(grid) < packed(best)) best = grid;
  }
  return best;
}

Tensor product(const Tensor& a, const Tensor& b) {
  check_factors(a, b);
  if (library().sgemm == nullptr) return at::mm(a, b);
  Tensor c = at::empty({a.size(0), b.size(1)}, a.options().requires_grad(false));
  return by_library(c, a, b, false) ? c : at::mm(a, b);
}

void product_into(Tensor& c, const Tensor& a, const Tensor& b, bool add) {
  check_factors(a, b);
  if (by_library(c, a, b, add)) return;
  if (add) {
    c.addmm_(a, b);
  } else {
    at::mm_out(c, a, b);
  }
}

}  // namespace dex::kernels
