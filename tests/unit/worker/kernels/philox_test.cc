#include "worker/kernels/philox.h"

#include <gtest/gtest.h>

namespace dex::kernels {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers of Random123 1.09, kat_vectors.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, ElementsAreUniformAndDependOnSeedStreamAndIndex) {
  constexpr int kCount = 20000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = random_unit(42, 7, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
  EXPECT_NE(random_word(42, 7, 0), random_word(43, 7, 0));
  EXPECT_NE(random_word(42, 7, 0), random_word(42, 8, 0));
  EXPECT_NE(random_word(42, 7, 0), random_word(42, 7, 1));
  EXPECT_NE(random_word(42, 7, 0), random_word(uint64_t{42} | uint64_t{1} << 32, 7, 0));
}

}  // namespace
}  // namespace dex::kernels
