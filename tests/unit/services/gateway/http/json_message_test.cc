#include "services/gateway/http/json_message.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "dex/v1/files.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/gateway/http/upstream.h"

namespace dex::gateway::http {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JsonMessageTest, PrintsProtoNamesEnumNamesStringsForInt64AndDefaults) {
  v1::File file;
  file.set_id("file-1");
  file.set_bytes(1LL << 60);
  const auto json = nlohmann::json::parse(to_json(file));
  EXPECT_EQ(json.at("id"), "file-1");
  EXPECT_EQ(json.at("bytes"), "1152921504606846976");
  EXPECT_EQ(json.at("filename"), "");
  EXPECT_EQ(json.at("state"), v1::FileState_Name(file.state()));
}

TEST(JsonMessageTest, RoundTrips) {
  v1::UploadFileRequest::Header header;
  ASSERT_TRUE(
      from_json(R"({"filename":"a","size_bytes":"5","skip_budget_ratio":0.05})", header).ok());
  EXPECT_EQ(header.size_bytes(), 5);
  v1::UploadFileRequest::Header again;
  ASSERT_TRUE(from_json(to_json(header), again).ok());
  EXPECT_EQ(again.SerializeAsString(), header.SerializeAsString());
  EXPECT_TRUE(from_json("", header).ok());
  EXPECT_THAT(header.filename(), IsEmpty());
}

TEST(JsonMessageTest, UnknownKeysAreNamedByPathWithTheNearestName) {
  v1::UploadFileRequest message;
  const auto status = from_json(R"({"header":{"filname":"a"},"nothing":1})", message);
  EXPECT_EQ(status.reason(), "UNKNOWN_FIELD");
  ASSERT_EQ(status.violations().size(), 2U);
  EXPECT_EQ(status.violations()[0].field, "header.filname");
  EXPECT_THAT(status.violations()[0].description, HasSubstr("did you mean 'filename'"));
  EXPECT_EQ(status.violations()[1].field, "nothing");
}

TEST(JsonMessageTest, RefusesTextThatIsNoObject) {
  v1::GetFileRequest message;
  for (const std::string bad :
       {std::string("{"), std::string("[]"), std::string("1"), std::string("{\"id\":5}"),
        std::string("{\"id\":\"\xff\"}"), std::string("{\"id\":\"a\",\"id\":\"b\"}"),
        std::string("{\"id\":\"a\"} x"), std::string(100'000, '['),
        "{\"id\":" + std::string(100, '{')}) {
    EXPECT_EQ(from_json(bad, message).code(), base::Code::kInvalidArgument) << bad.substr(0, 40);
  }
}

TEST(IdempotencyKeyTest, BecomesTheRequestId) {
  Request request;
  request.headers = {{"idempotency-key", "key-1"}};
  v1::UploadFileRequest upload;
  upload.mutable_header()->set_filename("a");
  ASSERT_TRUE(take_idempotency_key(request, upload).ok());
  EXPECT_EQ(upload.header().request_id(), "key-1");
  upload.mutable_header()->set_request_id("other");
  EXPECT_EQ(take_idempotency_key(request, upload).reason(), "CONFLICTING_FIELDS");
  v1::GetFileRequest without;
  EXPECT_TRUE(take_idempotency_key(request, without).ok());
  request.headers[0].second = "has space";
  EXPECT_EQ(take_idempotency_key(request, upload).reason(), "INVALID_FIELD");
}

}  // namespace
}  // namespace dex::gateway::http
