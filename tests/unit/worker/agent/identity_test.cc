#include "worker/agent/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dex::agent {
namespace {

using testing::ElementsAre;

TEST(IdentityTest, ModelsAreTheAllowListBasesWhatIsServed) {
  AgentOptions options;
  options.worker_id = "w1";
  options.slots = 2;
  const std::vector<BaseModelEntry> models = {{"small", "/m/small", "aa", "", ""},
                                              {"large", "/m/large", "bb", "", ""}};
  const auto request = identity(options, models, {models[1]}, "127.0.0.1:7");
  EXPECT_THAT(request.models(), ElementsAre("small", "large"));
  ASSERT_EQ(request.bases_size(), 1);
  EXPECT_EQ(request.bases(0).name(), "large");
  EXPECT_EQ(request.bases(0).weights_sha256(), "bb");
  EXPECT_EQ(request.slots(), 2U);
  EXPECT_THAT(request.features(), ElementsAre("shipped_text"));
  EXPECT_EQ(request.inference_address(), "127.0.0.1:7");

  options.advertise = "worker.example:9";
  options.pools.clear();
  const auto serving = identity(options, models, models, "127.0.0.1:7");
  EXPECT_EQ(serving.slots(), 0U) << "nothing to claim for";
  EXPECT_EQ(serving.inference_address(), "worker.example:9");
}

TEST(IdentityTest, AJobHasTheMemoryOfOneRank) {
  AgentOptions options;
  const int64_t alone = identity(options, {}, {}, "").devices(0).memory_bytes();
  options.ranks = 4;
  EXPECT_EQ(identity(options, {}, {}, "").devices(0).memory_bytes(), alone / 4);
}

}  // namespace
}  // namespace dex::agent
