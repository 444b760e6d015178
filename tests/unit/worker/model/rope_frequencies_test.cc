#include "worker/model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace dex::model {
namespace {

Config llama_3_2() {
  Config config;
  config.head_dim = 64;
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScaling::Type::kLlama3, 32, 1, 4, 8192};
  return config;
}

TEST(RopeFrequenciesTest, ArePowersOfTheta) {
  Config config = llama_3_2();
  config.rope_scaling = {};
  const auto plain = rope_frequencies(config);
  ASSERT_EQ(plain.size(), 32U);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(plain[i] / std::pow(500000.0, -2.0 * static_cast<double>(i) / 64), 1, 1e-6);
  config.rope_scaling = {.type = RopeScaling::Type::kLinear, .factor = 4};
  const auto scaled = rope_frequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

// What transformers 5.24 computes for Llama-3.2-1B (ROPE_INIT_FUNCTIONS["llama3"]): kept, blended
// and divided ones.
TEST(RopeFrequenciesTest, AreThoseOfLlama3) {
  const auto found = rope_frequencies(llama_3_2());
  const std::pair<size_t, double> expected[] = {{0, 1.0},
                                                {1, 0.663601279258728},
                                                {14, 0.0032114461064338684},
                                                {15, 0.0012905480107292533},
                                                {16, 0.000429556705057621},
                                                {17, 9.708286233944818e-05},
                                                {18, 1.9461638657958247e-05},
                                                {31, 9.418306490260875e-08}};
  for (const auto& [i, value] : expected) EXPECT_NEAR(found[i] / value, 1, 1e-6) << i;
}

}  // namespace
}  // namespace dex::model
