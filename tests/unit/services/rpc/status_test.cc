#include "services/rpc/status.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace dex::rpc {
namespace {

google::rpc::Status wire(const grpc::Status& status) {
  google::rpc::Status parsed;
  EXPECT_TRUE(parsed.ParseFromString(status.error_details()));
  return parsed;
}

template <typename M>
M detail(const grpc::Status& status) {
  M message;
  int found = 0;
  const auto whole = wire(status);
  for (const auto& any : whole.details()) found += any.UnpackTo(&message) ? 1 : 0;
  EXPECT_EQ(found, 1) << M::descriptor()->full_name();
  return message;
}

TEST(StatusTest, OkHasNoDetails) {
  EXPECT_TRUE(to_grpc({}, "req-1").ok());
  EXPECT_TRUE(to_grpc({}, "req-1").error_details().empty());
  EXPECT_TRUE(from_grpc(grpc::Status::OK).ok());
}

TEST(StatusTest, ErrorInfoSaysWhoActsAndWhetherToRepeat) {
  const auto status =
      to_grpc(base::failed_precondition("FILE_NOT_READY", "file-1 is PROCESSING"), "req-7");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "file-1 is PROCESSING");
  EXPECT_EQ(wire(status).code(), 9);
  EXPECT_EQ(wire(status).message(), "file-1 is PROCESSING");
  const auto info = detail<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(info.reason(), "FILE_NOT_READY");
  EXPECT_EQ(info.domain(), "dex");
  EXPECT_EQ(info.metadata().at("category"), "USER");
  EXPECT_EQ(info.metadata().at("retryable"), "true");
  EXPECT_EQ(info.metadata().at("request_id"), "req-7");
  const auto failure = detail<google::rpc::PreconditionFailure>(status);
  EXPECT_EQ(failure.violations(0).type(), "FILE_NOT_READY");
}

TEST(StatusTest, AllBadFieldsTravelAtOnce) {
  const auto status = to_grpc(base::invalid_field("seed", "must not be negative, got -1")
                                  .with_violation("suffix", "has 70 characters, at most 64"),
                              "req-1");
  const auto bad = detail<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(1).field(), "suffix");
  EXPECT_EQ(detail<google::rpc::ErrorInfo>(status).metadata().at("param"), "seed");
}

TEST(StatusTest, WaitingIsAdvisedWhereItHelps) {
  const auto away = to_grpc(base::unavailable("STORE_UNAVAILABLE", "Redis does not answer"), "r");
  EXPECT_GT(detail<google::rpc::RetryInfo>(away).retry_delay().seconds(), 0);
  const base::Status rate(base::Code::kResourceExhausted, "RATE_LIMITED", "600 a minute");
  EXPECT_GT(detail<google::rpc::RetryInfo>(to_grpc(rate, "r")).retry_delay().seconds(), 0);
  EXPECT_EQ(detail<google::rpc::QuotaFailure>(to_grpc(rate, "r")).violations_size(), 1);
}

TEST(StatusTest, NotFoundNamesTheResource) {
  const auto status = to_grpc(base::not_found("MODEL_NOT_FOUND", "there is no model 'x'")
                                  .with_metadata("resource_type", "model")
                                  .with_metadata("resource_name", "x"),
                              "r");
  EXPECT_EQ(detail<google::rpc::ResourceInfo>(status).resource_type(), "model");
  EXPECT_EQ(detail<google::rpc::ResourceInfo>(status).resource_name(), "x");
}

TEST(StatusTest, ComesBackAsItWas) {
  const auto sent = base::invalid_field("a.b", "is wrong").with_metadata("scope", "jobs:read");
  const auto back = from_grpc(to_grpc(sent, "req-9"));
  EXPECT_EQ(back.code(), sent.code());
  EXPECT_EQ(back.reason(), sent.reason());
  EXPECT_EQ(back.message(), sent.message());
  ASSERT_EQ(back.violations().size(), 1);
  EXPECT_EQ(back.violations()[0].field, "a.b");
  EXPECT_FALSE(retryable(back));
  EXPECT_TRUE(retryable(from_grpc(to_grpc(base::unavailable("ENGINE_LOST", "gone"), "r"))));
}

TEST(StatusTest, NoErrorIsTooLargeToBeReceived) {
  base::Status many = base::invalid_field("a", std::string(100'000, 'x'));
  for (int i = 0; i < 1000; ++i) {
    many = std::move(many).with_violation("f[" + std::to_string(i) + "]", std::string(500, 'y'));
  }
  const auto sent = to_grpc(many, "r");
  EXPECT_LT(sent.error_details().size() + sent.error_message().size(), 6000);
  EXPECT_GE(detail<google::rpc::BadRequest>(sent).field_violations_size(), 3);
  // Cut between characters, not inside one.
  const auto umlauts = to_grpc(base::internal(std::string(996, 'a') + "äöü"), "r");
  EXPECT_EQ(umlauts.error_message(), std::string(996, 'a') + "…");
}

TEST(StatusTest, AStatusOfGrpcItselfGetsItsUsualReason) {
  const grpc::Status plain(grpc::StatusCode::UNAVAILABLE, "failed to connect");
  EXPECT_FALSE(has_error_info(plain));
  EXPECT_EQ(from_grpc(plain).reason(), "STORE_UNAVAILABLE");
  EXPECT_EQ(from_grpc({grpc::StatusCode::UNKNOWN, "?"}).code(), base::Code::kInternal);
  const auto told = with_error_info({grpc::StatusCode::UNIMPLEMENTED, ""}, "req-3");
  EXPECT_EQ(detail<google::rpc::ErrorInfo>(told).reason(), "NOT_SUPPORTED");
}

TEST(StatusTest, DetailsThatAreThereStayUntouched) {
  const grpc::Status foreign(grpc::StatusCode::ABORTED, "theirs", "bytes that are not ours");
  EXPECT_EQ(with_error_info(foreign, "r").error_details(), "bytes that are not ours");
}

// The bytes as Google's own classes write them (googleapis-common-protos 1.63, Python):
// Status(code=16, message="no", details=[pack(ErrorInfo(reason="R", domain="dex"))]).
TEST(StatusTest, WireFormIsTheStandardOne) {
  google::rpc::ErrorInfo info;
  info.set_reason("R");
  info.set_domain("dex");
  google::rpc::Status status;
  status.set_code(16);
  status.set_message("no");
  status.add_details()->PackFrom(info);
  const std::string expected = std::string("\x08\x10\x12\x02no\x1a\x34\x0a\x28") +
                               "type.googleapis.com/google.rpc.ErrorInfo" +
                               "\x12\x08\x0a\x01R\x12\x03" + "dex";
  EXPECT_EQ(status.SerializeAsString(), expected);
}

}  // namespace
}  // namespace dex::rpc
