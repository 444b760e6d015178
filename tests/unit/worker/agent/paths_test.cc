#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/model_list.h"

namespace dex::agent {
namespace {

TEST(DataPathsTest, GoesBothWaysBelowTheDataDirectory) {
  const DataPaths paths("/data/dex/");
  EXPECT_EQ(paths.absolute("jobs/default/ftjob-1").value(), "/data/dex/jobs/default/ftjob-1");
  EXPECT_EQ(paths.absolute("/data/dex/files/a").value(), "/data/dex/files/a");
  EXPECT_EQ(paths.relative("/data/dex/jobs/x/final").value(), "jobs/x/final");
}

TEST(DataPathsTest, RefusesEveryWayOut) {
  const DataPaths paths("/data/dex");
  for (const char* path : {"", ".", "..", "../x", "jobs/../../x", "/data/dex/../x", "/etc/passwd",
                           "/data/dexter/x", "/data/dex"}) {
    EXPECT_EQ(paths.absolute(path).status().reason(), "PATH_NOT_ALLOWED") << path;
    EXPECT_FALSE(paths.relative(path).ok()) << path;
  }
}

class ModelListTest : public testing::Test {
 protected:
  base::Result<std::vector<BaseModelEntry>> read(const std::string& text) {
    std::ofstream(directory_ / "models.json") << text;
    return read_model_list(directory_ / "models.json");
  }
  support::TemporaryDirectory directory_;
};

TEST_F(ModelListTest, FoldersAreRelativeToTheFile) {
  const auto models = read(R"({"models": [
      {"name": "smollm2-135m-instruct", "folder": "smol", "weights_sha256": "ab"},
      {"name": "other", "folder": "/abs", "unknown": 1}]})");
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].folder, directory_ / "smol");
  EXPECT_EQ((*models)[0].weights_sha256, "ab");
  EXPECT_EQ((*models)[1].folder, "/abs");
  EXPECT_EQ(find_model(*models, "other"), &(*models)[1]);
  EXPECT_EQ(find_model(*models, "none"), nullptr);
}

TEST_F(ModelListTest, RefusesWhatIsNoListAndNamesThatAreNone) {
  for (const char* text : {"", "[]", "{\"models\": 1}", "{\"models\": [1]}",
                           R"({"models": [{"name": "../x", "folder": "f"}]})",
                           R"({"models": [{"name": "Upper", "folder": "f"}]})",
                           R"({"models": [{"name": "a"}]})", "{\"models\": [\"\xff\"]}"}) {
    EXPECT_EQ(read(text).status().reason(), "INVALID_FIELD") << text;
  }
  EXPECT_EQ(read_model_list(directory_ / "none").status().reason(), "FILE_MISSING");
}

// A wrong entry is shown, level by level: this one is deeper than the stack.
TEST_F(ModelListTest, RefusesWhatIsNestedTooDeep) {
  const std::string deep(400'000, '[');
  EXPECT_EQ(read("{\"models\": [" + deep + std::string(deep.size(), ']') + "]}").status().reason(),
            "INVALID_FIELD");
}

}  // namespace
}  // namespace dex::agent
