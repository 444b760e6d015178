#include "worker/kernels/gemm.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::random_tensor;

// The library for one test; then LibTorch's again.
class GemmInUse {
 public:
  explicit GemmInUse(Gemm gemm) : got_(use_gemm({gemm, "test"})) {}
  ~GemmInUse() { use_gemm({Gemm::kLibTorch, ""}); }
  GemmInUse(const GemmInUse&) = delete;
  GemmInUse& operator=(const GemmInUse&) = delete;
  const GemmChoice& got() const { return got_; }

 private:
  GemmChoice got_;
};

struct GemmSize {
  int64_t m, n, k;
};

class GemmTest : public ::testing::TestWithParam<Gemm> {};

// Sizes above and below the one from which the library is asked, none of them round; operands as
// the trainer has them (y = x·Wᵀ, dX = dY·W, dW = dYᵀ·X), and a slice of rows.
TEST_P(GemmTest, EveryLayoutAgreesWithTheProductInDouble) {
  const GemmInUse library(GetParam());
  ASSERT_EQ(library.got().gemm, GetParam()) << library.got().why;
  for (const GemmSize& size :
       {GemmSize{171, 203, 97}, GemmSize{257, 64, 576}, GemmSize{1, 4099, 601}, GemmSize{5, 7, 3},
        GemmSize{130, 1, 20000}}) {
    SCOPED_TRACE(std::to_string(size.m) + "×" + std::to_string(size.n) + "×" +
                 std::to_string(size.k));
    const Tensor a = random_tensor({size.m, size.k}, 1), b = random_tensor({size.k, size.n}, 2);
    const Tensor expected = a.to(at::kDouble).mm(b.to(at::kDouble));
    const Tensor a_turned = a.t().contiguous().t(), b_turned = b.t().contiguous().t();
    const Tensor a_slice = random_tensor({size.m, size.k + 5}, 3).narrow(1, 2, size.k).copy_(a);
    for (const Tensor& left : {a, a_turned, a_slice}) {
      for (const Tensor& right : {b, b_turned}) {
        const Tensor c = product(left, right);
        expect_close(c, expected, 2e-5);
        EXPECT_TRUE(product(left, right).equal(c)) << "twice the same, other bits";
        Tensor sum = at::full({size.m + 2, size.n}, 0.5).narrow(0, 1, size.m);
        product_into(sum, left, right, true);
        expect_close(sum, expected + 0.5, 2e-5);
        product_into(sum, left, right);
        expect_close(sum, expected, 2e-5);
      }
    }
    expect_close(product(a.to(at::kDouble), b.to(at::kDouble)), expected, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, GemmTest, ::testing::Values(Gemm::kLibTorch, Gemm::kOpenBlas),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(GemmChoiceTest, FollowsTheTableUnlessAsked) {
  EXPECT_EQ(choose_gemm("auto", true).gemm, Gemm::kLibTorch);
  EXPECT_EQ(choose_gemm("auto", false).gemm, Gemm::kOpenBlas);
  for (const bool intel : {true, false}) {
    EXPECT_EQ(choose_gemm("libtorch", intel).gemm, Gemm::kLibTorch);
    EXPECT_EQ(choose_gemm("openblas", intel).gemm, Gemm::kOpenBlas);
  }
  try {
    choose_gemm("mkl", true);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "[gemm] library must be auto, libtorch or openblas, got \"mkl\"");
  }
}

TEST(GemmGridTest, CutsTheLongerSideFirstAndUsesEveryThread) {
  const auto cut = [](int64_t m, int64_t n, int64_t threads) {
    const GemmGrid grid = gemm_grid(m, n, threads);
    return std::vector<int64_t>{grid.rows, grid.columns};
  };
  EXPECT_EQ(cut(512, 1536, 2), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(cut(49152, 576, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(cut(512, 576, 4), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(cut(171, 49152, 8), (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(cut(512, 512, 3), (std::vector<int64_t>{1, 3}));
}

}  // namespace
}  // namespace dex::kernels
