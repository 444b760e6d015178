#include <fstream>
#include <nlohmann/json.hpp>

#include "scheduler/server/model_catalog.h"
#include "scheduler/server/model_shape.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/paths.h"

namespace dex::server {
namespace {

class ModelServiceTest : public SchedulerTest {};

TEST_F(ModelServiceTest, ModelComesFromItsConfig) {
  v1::GetModelRequest request;
  request.set_name("small-model");
  auto model = call(*models_, &ModelStub::GetModel, request);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->parameters(), 134515008);  // SmolLM2-135M's own count
  EXPECT_EQ(model->layers(), 30);
  EXPECT_EQ(model->family(), "llama");
  EXPECT_EQ(model->context_length(), 8192);
  EXPECT_FALSE(model->served());
  EXPECT_EQ(model->served_dtype(), v1::Model::SERVED_DTYPE_UNSPECIFIED);
  enlist();
  report_engine("w1");
  model = call(*models_, &ModelStub::GetModel, request);
  EXPECT_TRUE(model->served());
  EXPECT_EQ(model->served_dtype(), v1::Model::SERVED_DTYPE_INT8);
  EXPECT_EQ(call(*models_, &ModelStub::ListModels, v1::ListModelsRequest{})->models_size(), 1);
  request.set_name("other");
  EXPECT_EQ(call(*models_, &ModelStub::GetModel, request).status().reason(), "MODEL_NOT_FOUND");
}

TEST_F(ModelServiceTest, PresetsAndCapabilities) {
  EXPECT_EQ(call(*models_, &ModelStub::ListPresets, v1::ListPresetsRequest{})->presets_size(), 7);
  v1::GetPresetRequest request;
  request.set_name("auto");
  request.set_model("small-model");
  EXPECT_EQ(call(*models_, &ModelStub::GetPreset, request)->name(), "small");
  request.set_name("nonsense");
  EXPECT_EQ(call(*models_, &ModelStub::GetPreset, request).status().reason(), "UNKNOWN_PRESET");
  enlist();
  const auto capabilities =
      call(*models_, &ModelStub::GetServerCapabilities, v1::GetServerCapabilitiesRequest{});
  EXPECT_EQ(capabilities->limits().at("tenant_queued_jobs"), 20);
  ASSERT_EQ(capabilities->pools_size(), 1);
  EXPECT_EQ(capabilities->pools(0), "cpu");
}

TEST_F(ModelServiceTest, AnOperatorsPricesAreToldAndMakeAnEstimatesCost) {
  auto with_prices = options();
  with_prices.device.prices = core::parse_prices({"3.6", "gpu1=36"}, "EUR").value();
  const auto priced = start(with_prices);
  const auto models = v1::ModelService::NewStub(connected(priced->grpc_address()));
  const auto told =
      call(*models, &ModelStub::GetServerCapabilities, v1::GetServerCapabilitiesRequest{});
  ASSERT_TRUE(told.ok()) << told.status().to_string();
  EXPECT_EQ(told->currency(), "EUR");
  EXPECT_EQ(told->device_hour_prices().at(""), 3.6);
  EXPECT_EQ(told->device_hour_prices().at("gpu1"), 36);

  v1::EstimateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  EXPECT_FALSE(call(*jobs_, &JobStub::EstimateFineTuningJob, request)->has_cost());
  const auto jobs = v1::FineTuningService::NewStub(connected(priced->grpc_address()));
  const auto estimate = call(*jobs, &JobStub::EstimateFineTuningJob, request);
  ASSERT_TRUE(estimate.ok()) << estimate.status().to_string();
  EXPECT_DOUBLE_EQ(estimate->cost(), estimate->expected_duration_seconds() / 1000);
  EXPECT_EQ(estimate->cost_currency(), "EUR");
}

// A worker's pool counts while it is up and has the model.
TEST_F(ModelServiceTest, LimitsNameThePoolsThatHaveTheModel) {
  v1::GetModelLimitsRequest request;
  request.set_model("small-model");
  request.set_method("lora");
  EXPECT_EQ(call(*models_, &ModelStub::GetModelLimits, request)->pools_size(), 0);
  enlist("w1", {"other"});
  EXPECT_EQ(call(*models_, &ModelStub::GetModelLimits, request)->pools_size(), 0);
  enlist("w2", {"small-model"});
  const auto limits = call(*models_, &ModelStub::GetModelLimits, request);
  ASSERT_TRUE(limits.ok()) << limits.status().to_string();
  ASSERT_EQ(limits->pools_size(), 1);
  EXPECT_EQ(limits->pools(0).name(), "cpu");
  EXPECT_THAT(limits->pools(0).fits(), testing::ElementsAre("lora"));
  request.set_model("other");
  EXPECT_EQ(call(*models_, &ModelStub::GetModelLimits, request).status().reason(),
            "MODEL_NOT_FOUND");
  request.set_model("small-model");
  request.set_method("dpo");
  expect_refused(call(*models_, &ModelStub::GetModelLimits, request).status(), "INVALID_FIELD",
                 "method");
}

// The counts that transformers has for these models (the workers' side: worker/model's families).
TEST(ModelCatalogTest, CountsEveryFamily) {
  const auto read = [](const std::string& family) {
    const auto folder = support::source_dir() / "tests/data/model/families" / family;
    std::ifstream file(folder / "config.json");
    v1::Model model;
    const auto status = read_model_shape(nlohmann::json::parse(file), model);
    EXPECT_TRUE(status.ok()) << family << ": " << status.to_string();
    return model;
  };
  EXPECT_EQ(read("llama3").parameters(), 11'784);
  EXPECT_EQ(read("llama_linear").parameters(), 9'028);  // biases everywhere
  EXPECT_EQ(read("mistral").parameters(), 13'020);
  EXPECT_EQ(read("qwen2").parameters(), 13'820);
  EXPECT_EQ(read("qwen3").parameters(), 9'080);
  EXPECT_EQ(read("qwen3_biased").parameters(), 12'612);
  EXPECT_EQ(read("diffllama").parameters(), 25'248);
  EXPECT_EQ(read("diffllama_biased").parameters(), 9'280);
  EXPECT_TRUE(read("diffllama").differential());
  EXPECT_FALSE(read("llama3").differential());
  EXPECT_EQ(read("qwen2").family(), "qwen2");
  EXPECT_TRUE(read("qwen2").attention_bias());
  EXPECT_FALSE(read("qwen2").output_bias());
  EXPECT_TRUE(read("qwen3_biased").output_bias());
  EXPECT_TRUE(read("qwen3").qk_norm());
}

// What method diff published, by the key that it writes: W_Q2 and W_λ, or W_Q2, W_K2 and λ's
// vectors.
TEST(ModelCatalogTest, CountsASecondMap) {
  std::ifstream file(support::source_dir() / "tests/data/model/families/qwen2/config.json");
  auto config = nlohmann::json::parse(file);
  const auto read = [&](const char* version) {
    config["differential_attention"] = {{"version", version}};
    v1::Model model;
    EXPECT_TRUE(read_model_shape(config, model).ok());
    EXPECT_TRUE(model.differential());
    return model.parameters();
  };
  // L 2, D 28, H 7, K 1, d 4, with biases.
  EXPECT_EQ(read("V2"), 13'820 + 2 * (28 * 29 + 7 * 28));
  EXPECT_EQ(read("V1"), 13'820 + 2 * (28 * 29 + 4 * 29 + 4 * 4));
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
  std::ofstream(directory / "empty/config.json")
      << R"({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 8,
             "model_type": "gemma2"})";
  EXPECT_EQ(reason(R"({"models": [{"name": "x", "folder": "empty"}]})"),
            "model 'x': config.json: 'model_type' must be one of diffllama, llama, mistral, qwen2, "
            "qwen3, got 'gemma2'; take the model off the list");
}

}  // namespace
}  // namespace dex::server
