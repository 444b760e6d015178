#include "services/rpc/reasons.h"

#include <gtest/gtest.h>

namespace dex::rpc {
namespace {

using base::Code;

TEST(ReasonsTest, RowsOfTheTable) {
  EXPECT_EQ(find_reason("TOO_LARGE", Code::kInvalidArgument).http_status, 413);
  EXPECT_EQ(find_reason("DOES_NOT_FIT", Code::kFailedPrecondition).category, "CAPACITY");
  EXPECT_TRUE(find_reason("UPLOAD_OFFSET", Code::kOutOfRange).retryable);
  EXPECT_TRUE(find_reason("FILE_NOT_READY", Code::kFailedPrecondition).retryable);
  EXPECT_FALSE(find_reason("STORAGE_FULL", Code::kResourceExhausted).retryable);
  EXPECT_EQ(find_reason("NO_WORKER", Code::kUnavailable).category, "CAPACITY");
  EXPECT_EQ(find_reason("ENGINE_LOST", Code::kUnavailable).category, "SYSTEM");
}

TEST(ReasonsTest, AnUnknownWordStillHasACategory) {
  EXPECT_EQ(find_reason("SOMETHING_NEW", Code::kUnavailable).category, "SYSTEM");
  EXPECT_EQ(find_reason("", Code::kNotFound).word, "RESOURCE_NOT_FOUND");
}

TEST(ReasonsTest, EveryCodeHasADefaultOfItsOwn) {
  for (const Code code :
       {Code::kCancelled, Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kNotFound,
        Code::kAlreadyExists, Code::kPermissionDenied, Code::kResourceExhausted,
        Code::kFailedPrecondition, Code::kAborted, Code::kOutOfRange, Code::kUnimplemented,
        Code::kInternal, Code::kUnavailable, Code::kDataLoss, Code::kUnauthenticated}) {
    EXPECT_EQ(default_reason(code).code, code) << base::name(code);
  }
}

}  // namespace
}  // namespace dex::rpc
