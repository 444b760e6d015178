#include "worker/agent/earlier_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "services/base/sha256.h"
#include "tests/support/temporary_directory.h"

namespace dex::agent {
namespace {

constexpr const char* kOldAttempt = "jobs/default/ftjob-1/attempt-4/";

class EarlierCheckpointTest : public testing::Test {
 protected:
  std::string save(const std::string& name, const std::string& manifest) {
    const auto folder = directory_ / (kOldAttempt + name);
    std::filesystem::create_directories(folder);
    if (!manifest.empty()) std::ofstream(folder / "MANIFEST.json") << manifest;
    return manifest;
  }
  std::optional<iv1::CheckpointRef> before(const std::string& name, uint32_t step) {
    iv1::CheckpointRef broken;
    broken.set_uri(kOldAttempt + name);
    broken.set_step(step);
    return earlier_checkpoint(broken, DataPaths(directory_.path()));
  }

  support::TemporaryDirectory directory_;
};

TEST_F(EarlierCheckpointTest, IsTheNewestOfASmallerStepWithAManifest) {
  save("step-5", R"({"step": 5})");
  const std::string manifest = save("step-10", R"({"step": 10})");
  save("step-12", "");                         // half removed
  save("step-13", "{");                        // no JSON
  save("step-14", R"({"step": "fourteen"})");  // not a trainer's
  save("step-15.tmp", "");
  save("step-17", R"({"step": 17})");
  save("step-20", R"({"step": 20})");
  save("gates-16", R"({"step": 16})");
  const auto found = before("step-17", 17);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->uri(), std::string(kOldAttempt) + "step-10");
  EXPECT_EQ(found->manifest_sha256(), base::sha256_hex(manifest));
  EXPECT_EQ(found->step(), 10u);
  EXPECT_EQ(before("step-10", 10)->step(), 5u);
  EXPECT_FALSE(before("step-5", 5).has_value());
}

TEST_F(EarlierCheckpointTest, OfTwoAtOneStepTheLaterOne) {
  save("step-9", R"({"step": 9})");
  save("step-12", R"({"step": 12})");
  save("step-12-2", R"({"step": 12, "way": 2})");
  save("step-12-10", R"({"step": 12, "way": 10})");
  EXPECT_EQ(before("step-15", 15)->uri(), std::string(kOldAttempt) + "step-12-10");
}

TEST_F(EarlierCheckpointTest, OfAnAttemptThatIsGoneThereIsNone) {
  EXPECT_FALSE(before("step-5", 5).has_value());
  iv1::CheckpointRef outside;
  outside.set_uri("../elsewhere/step-5");
  outside.set_step(5);
  EXPECT_FALSE(earlier_checkpoint(outside, DataPaths(directory_.path())).has_value());
}

}  // namespace
}  // namespace dex::agent
