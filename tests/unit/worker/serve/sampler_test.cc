#include "worker/serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace dex::serve {
namespace {

const std::vector<float> kLogits = {1.0F, 3.0F, 2.0F, -1.0F, 3.0F};

int32_t choose(Sampler& sampler, std::vector<float> logits = kLogits,
               std::vector<int32_t> banned = {}) {
  return sampler.choose(logits, banned).token;
}

// How often each token comes in `draws` draws of one sampler.
std::map<int32_t, double> shares(Sampling options, int draws,
                                 const std::vector<float>& logits = kLogits) {
  Sampler sampler(options, {}, -1);
  std::map<int32_t, double> out;
  for (int i = 0; i < draws; ++i) out[choose(sampler, logits)] += 1.0 / draws;
  return out;
}

std::vector<double> softmax(double temperature, const std::vector<float>& logits = kLogits) {
  std::vector<double> p;
  double sum = 0;
  for (const float l : logits) sum += p.emplace_back(std::exp(l / temperature));
  for (double& v : p) v /= sum;
  return p;
}

TEST(Sampler, GreedyTakesTheLikeliestAndTheLowerIdOfEquals) {
  Sampler sampler({.temperature = 0}, {}, -1);
  EXPECT_EQ(choose(sampler), 1);
  EXPECT_EQ(choose(sampler, kLogits, {1}), 4);
}

TEST(Sampler, FollowsTheDistribution) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto got = shares({.temperature = temperature, .seed = 5}, 20000);
    const auto want = softmax(temperature);
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(got.contains(i) ? got.at(i) : 0.0, want[i], 0.012) << i;
  }
}

TEST(Sampler, TopKKeepsKAndTheLowerIdsOfEquals) {
  const auto two = shares({.top_k = 2, .seed = 1}, 2000);
  EXPECT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 0.5, 0.05);
  EXPECT_NEAR(two.at(4), 0.5, 0.05);
  const auto one = shares({.top_k = 1, .seed = 1}, 200);
  EXPECT_EQ(one.size(), 1U);
  EXPECT_TRUE(one.contains(1));
  EXPECT_EQ(shares({.top_k = 100, .seed = 1}, 20000).size(), 5U);
}

TEST(Sampler, TopPKeepsTheNucleusWithItsCrossingToken) {
  // 0.386 0.386 | 0.142 | 0.052 | 0.007 of the total.
  EXPECT_EQ(shares({.top_p = 0.3, .seed = 2}, 500).size(), 1U);
  EXPECT_EQ(shares({.top_p = 0.5, .seed = 2}, 500).size(), 2U);
  EXPECT_EQ(shares({.top_p = 0.8, .seed = 2}, 2000).size(), 3U);
  EXPECT_EQ(shares({.top_p = 0.95, .seed = 2}, 5000).size(), 4U);
  EXPECT_EQ(shares({.top_p = 1e-9, .seed = 2}, 50).size(), 1U);
}

TEST(Sampler, MinPIsRelativeToTheLikeliest) {
  EXPECT_EQ(shares({.min_p = 0.3, .seed = 3}, 2000).size(),
            3U);  // exp(−1) = 0.37 stays, exp(−2) = 0.14 goes
  EXPECT_EQ(shares({.min_p = 1, .seed = 3}, 200).size(), 2U);
}

TEST(Sampler, RepetitionPenaltyFollowsTransformers) {
  const std::vector<int32_t> prompt = {1, 3};
  Sampler sampler({.temperature = 0, .repetition_penalty = 2}, prompt, 5);
  std::vector<float> logits = {1.0F, 3.0F, 2.0F, -1.0F, 0.0F};  // 1 → 1.5, 3 → −2
  const Choice choice = sampler.choose(logits, {});
  EXPECT_EQ(choice.token, 2);
  // Log-probabilities are those of the raw logits.
  const auto want = softmax(1, {1.0F, 3.0F, 2.0F, -1.0F, 0.0F});
  EXPECT_NEAR(choice.logprob, std::log(want[2]), 1e-6);
  ASSERT_EQ(choice.top.size(), 5U);
  EXPECT_EQ(choice.top[0].first, 1);
  EXPECT_NEAR(choice.top[0].second, std::log(want[1]), 1e-6);
  // What was generated counts too: 2 → 1, the same as token 0, whose id is lower.
  EXPECT_EQ(choose(sampler, {1.0F, 0.0F, 1.9F, -1.0F, 0.0F}), 0);
}

TEST(Sampler, PresenceAndFrequencyCountTheCompletionOnly) {
  const std::vector<int32_t> prompt = {1};
  Sampler sampler({.temperature = 0, .presence_penalty = 0.5, .frequency_penalty = 0.4}, prompt,
                  -1);
  EXPECT_EQ(choose(sampler, {0, 3, 2.5, 0}), 1);  // the prompt's 1 is free
  EXPECT_EQ(choose(sampler, {0, 3, 2.5, 0}), 2);  // 3 − 0.9
  EXPECT_EQ(choose(sampler, {0, 3, 2.5, 0}), 1);  // 2.1 against 1.6
  EXPECT_EQ(choose(sampler, {0, 3, 2.5, 0}), 1);  // 3 − 0.5 − 0.8 = 1.7 against 1.6
}

TEST(Sampler, AChoiceDependsOnSeedAndPlaceAlone) {
  std::vector<int32_t> first, second, other;
  for (const uint64_t seed : {42U, 42U, 43U}) {
    Sampler sampler({.seed = seed}, {}, -1);
    auto& to = seed == 43 ? other : first.empty() ? first : second;
    for (int i = 0; i < 50; ++i) to.push_back(choose(sampler));
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST(Sampler, TopLogprobsHoldTheChosenTokensNumber) {
  Sampler sampler({.seed = 9}, {}, 5);
  for (int i = 0; i < 50; ++i) {
    auto logits = kLogits;
    const Choice choice = sampler.choose(logits, {});
    bool found = false;
    for (const auto& [token, logprob] : choice.top) {
      if (token == choice.token) {
        EXPECT_EQ(logprob, choice.logprob);
        found = true;
      }
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(choice.top[0].first, 1);
    EXPECT_EQ(choice.top[1].first, 4);
  }
}

TEST(Sampler, UnusableLogitsAreTold) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    for (const int32_t top : {-1, 2}) {
      for (auto logits : {std::vector<float>{nan, nan}, {inf, 1.0F}, {-inf, -inf}}) {
        Sampler sampler({.temperature = temperature}, {}, top);
        EXPECT_FALSE(sampler.choose(logits, {}).finite) << temperature << " " << top;
      }
    }
  }
}

}  // namespace
}  // namespace dex::serve
