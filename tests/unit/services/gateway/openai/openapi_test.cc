// openapi.json and the router tell of the same routes.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "services/gateway/openai/routes.h"

namespace dex::gateway::openai {
namespace {

using nlohmann::json;

std::string upper(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), ::toupper);
  return word;
}

class OpenApiTest : public ::testing::Test {
 protected:
  OpenApiTest() { add_openai_routes(router_, upstream_, room_); }

  std::set<std::string> described() const {
    std::set<std::string> all;
    for (const auto& [path, methods] : text_.at("paths").items()) {
      for (const auto& [method, _] : methods.items()) all.insert(upper(method) + " " + path);
    }
    return all;
  }

  rpc::Room room_{rpc::Room::Options{}};
  http::Upstream upstream_{
      grpc::CreateChannel("unix:/nowhere/dex", grpc::InsecureChannelCredentials())};
  http::Router router_;
  const json text_ = json::parse(openapi_text());
};

TEST_F(OpenApiTest, DescribesEveryRouteThatAnswersAndNoOther) {
  std::set<std::string> routed;
  // What only says that it is not there is not described.
  const std::set<std::string> absent = {"/v1/uploads", "/v1/embeddings", "/v1/responses",
                                        "/v1/batches", "/v1/fine_tuning/checkpoints"};
  for (const auto* route : router_.routes()) {
    const bool refused = std::any_of(absent.begin(), absent.end(), [&](const std::string& begin) {
      return route->pattern.starts_with(begin);
    });
    if (!refused) routed.insert(route->method + " " + route->pattern);
  }
  EXPECT_EQ(routed, described());
}

TEST_F(OpenApiTest, EveryReferenceLeadsSomewhere) {
  const std::function<void(const json&)> walk = [&](const json& value) {
    if (value.is_object() && value.contains("$ref") && value.at("$ref").is_string()) {
      const auto path = value.at("$ref").get<std::string>();
      ASSERT_TRUE(path.starts_with("#/"));
      EXPECT_TRUE(text_.contains(json::json_pointer(path.substr(1)))) << path;
    }
    if (value.is_structured()) {
      for (const auto& item : value) walk(item);
    }
  };
  walk(text_);
  EXPECT_EQ(text_.at("openapi"), "3.1.0");
}

}  // namespace
}  // namespace dex::gateway::openai
