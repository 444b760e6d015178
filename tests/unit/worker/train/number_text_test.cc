#include "worker/train/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dex::train {
namespace {

TEST(NumberTextTest, GivesAboutFourDigits) {
  EXPECT_EQ(number_text(0.008434679943024255), "0.0084");
  EXPECT_EQ(number_text(8.0108642578125e-05), "8.0e-05");
  EXPECT_EQ(number_text(2.25034), "2.2503");
  EXPECT_EQ(number_text(-2.25), "-2.25");
  EXPECT_EQ(number_text(31.2599), "31.26");
  EXPECT_EQ(number_text(100 * 0.34), "34");
  EXPECT_EQ(number_text(1023.96), "1024");
  EXPECT_EQ(number_text(123456.7), "123457");
  EXPECT_EQ(number_text(12345678), "1.2e+07");
  EXPECT_EQ(number_text(1e-4), "1.0e-04");
  EXPECT_EQ(number_text(0.001), "0.001");
  EXPECT_EQ(number_text(9.99999), "10");
  EXPECT_EQ(number_text(100), "100");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(-0.0), "0");
}

TEST(NumberTextTest, NamesWhatIsNoNumber) {
  EXPECT_EQ(number_text(std::nan("")), "NaN");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace dex::train
