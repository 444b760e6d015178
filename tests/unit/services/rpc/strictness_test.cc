#include "services/rpc/strictness.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "dex/v1/inference.pb.h"

namespace dex::rpc {
namespace {

void add_unknown(google::protobuf::Message& message, int number) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(number, 1);
}

v1::GenerateRequest request() {
  v1::GenerateRequest made;
  made.set_model("m");
  made.mutable_chat()->add_messages()->set_role("user");
  made.mutable_chat()->add_messages()->set_role("assistant");
  made.add_stop("x");
  return made;
}

TEST(StrictnessTest, KnownFieldsPass) {
  EXPECT_TRUE(check_known_fields(request()).ok());
}

TEST(StrictnessTest, NamesPathAndNumber) {
  auto bad = request();
  add_unknown(bad, 900);
  add_unknown(*bad.mutable_chat()->mutable_messages(1), 77);
  const auto status = check_known_fields(bad);
  EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
  EXPECT_EQ(status.reason(), "UNKNOWN_FIELD");
  ASSERT_EQ(status.violations().size(), 2);
  EXPECT_EQ(status.violations()[0].field, "#900");
  EXPECT_EQ(status.violations()[1].field, "chat.messages[1].#77");
}

TEST(StrictnessTest, AFloodOfFieldsIsCutShort) {
  auto bad = request();
  for (int i = 0; i < 10'000; ++i) add_unknown(bad, 1000 + i);
  EXPECT_EQ(check_known_fields(bad).violations().size(), 20);
}

}  // namespace
}  // namespace dex::rpc
