#include <fstream>

#include "scheduler/server/model_catalog.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using Stub = v1::ModelService::Stub;

class ModelServiceTest : public SchedulerTest {};

TEST_F(ModelServiceTest, ModelComesFromItsConfig) {
  v1::GetModelRequest request;
  request.set_name("small-model");
  auto model = call(*models_, &Stub::GetModel, request);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->parameters(), 134515008);  // SmolLM2-135M's own count
  EXPECT_EQ(model->layers(), 30);
  EXPECT_EQ(model->context_length(), 8192);
  EXPECT_FALSE(model->served());
  enlist();
  report_engine("w1");
  model = call(*models_, &Stub::GetModel, request);
  EXPECT_TRUE(model->served());
  EXPECT_EQ(call(*models_, &Stub::ListModels, v1::ListModelsRequest{})->models_size(), 1);
  request.set_name("other");
  EXPECT_EQ(call(*models_, &Stub::GetModel, request).status().reason(), "MODEL_NOT_FOUND");
}

TEST_F(ModelServiceTest, PresetsAndCapabilities) {
  EXPECT_EQ(call(*models_, &Stub::ListPresets, v1::ListPresetsRequest{})->presets_size(), 7);
  v1::GetPresetRequest request;
  request.set_name("auto");
  request.set_model("small-model");
  EXPECT_EQ(call(*models_, &Stub::GetPreset, request)->name(), "small");
  request.set_name("nonsense");
  EXPECT_EQ(call(*models_, &Stub::GetPreset, request).status().reason(), "UNKNOWN_PRESET");
  enlist();
  const auto capabilities =
      call(*models_, &Stub::GetServerCapabilities, v1::GetServerCapabilitiesRequest{});
  EXPECT_EQ(capabilities->limits().at("tenant_queued_jobs"), 20);
  ASSERT_EQ(capabilities->pools_size(), 1);
  EXPECT_EQ(capabilities->pools(0), "cpu");
}

TEST(ModelCatalogTest, BrokenListsAreNamed) {
  const support::TemporaryDirectory directory;
  const auto file = directory / "models.json";
  const auto reason = [&](const std::string& text) {
    std::ofstream(file) << text;
    const auto catalog = ModelCatalog::load(file);
    return catalog.ok() ? "" : catalog.status().message();
  };
  EXPECT_NE(ModelCatalog::load(directory / "none.json").status().message().find("none.json"),
            std::string::npos);
  EXPECT_NE(reason("[").find("not a JSON object"), std::string::npos);
  EXPECT_NE(reason("{}").find("'models' must be a list"), std::string::npos);
  EXPECT_NE(reason(R"({"models": [{"name": "x"}]})").find("'folder'"), std::string::npos);
  EXPECT_NE(reason(R"({"models": [{"name": "x", "folder": "gone"}]})").find("model 'x'"),
            std::string::npos);
  std::filesystem::create_directories(directory / "empty");
  std::ofstream(directory / "empty/config.json") << "{}";
  EXPECT_NE(reason(R"({"models": [{"name": "x", "folder": "empty"}]})").find("num_hidden_layers"),
            std::string::npos);
}

}  // namespace
}  // namespace dex::server
