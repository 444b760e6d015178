#include "scheduler/server/request_key.h"

#include <gtest/gtest.h>

#include "dex/v1/finetuning.pb.h"
#include "tests/support/manual_clock.h"

namespace dex::server {
namespace {

TEST(RequestKeyTest, AClientsOwnIsKeptAndAMissingOneIsMade) {
  const support::ManualClock clock;
  base::SeededRandom random(1);
  base::UlidGenerator ids(clock, random);
  EXPECT_EQ(*request_key("retry-7", ids), "retry-7");
  EXPECT_EQ(*request_key(std::string(64, 'x'), ids), std::string(64, 'x'));
  const auto first = request_key("", ids);
  EXPECT_TRUE(base::is_id(*first, "server-")) << *first;
  EXPECT_NE(*first, *request_key("", ids)) << "two calls without an id are two requests";
  for (const std::string& wrong : {std::string(65, 'x'), std::string("a b"), std::string("a\n"),
                                   std::string("é"), std::string("a\0b", 3)}) {
    const auto key = request_key(wrong, ids);
    EXPECT_EQ(key.status().reason(), "INVALID_FIELD") << wrong;
    EXPECT_EQ(key.status().violations().at(0).field, "request_id");
  }
}

TEST(MessageShaTest, EqualMessagesHaveOneHashWhateverTheOrderOfTheirMaps) {
  v1::FineTuningJobSpec a;
  v1::FineTuningJobSpec b;
  for (int i = 0; i < 50; ++i) {
    (*a.mutable_metadata())["key" + std::to_string(i)] = "v";
    (*b.mutable_metadata())["key" + std::to_string(49 - i)] = "v";
  }
  EXPECT_EQ(message_sha256(a), message_sha256(b));
  (*b.mutable_metadata())["key7"] = "w";
  EXPECT_NE(message_sha256(a), message_sha256(b));
  // Of no bytes at all, so that the hash of today is the hash of yesterday.
  EXPECT_EQ(message_sha256(v1::FineTuningJobSpec()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(MessageShaTest, EqualBytesOfOtherTypesAreOtherRequests) {
  v1::PauseFineTuningJobRequest pause;
  v1::ResumeFineTuningJobRequest resume;
  pause.set_id("ftjob-1");
  resume.set_id("ftjob-1");
  EXPECT_EQ(message_sha256(pause), message_sha256(resume));
  EXPECT_NE(request_sha256(pause), request_sha256(resume));
  EXPECT_EQ(request_sha256(pause), request_sha256(pause));
  EXPECT_EQ(request_sha256(pause).size(), 64U) << "it is kept for a day";
}

TEST(MessageShaTest, AFieldSetToItsDefaultIsAnotherRequest) {
  v1::FineTuningJobSpec unset;
  v1::FineTuningJobSpec zero;
  zero.set_seed(0);  // a seed of 0 is not "the server chooses"
  EXPECT_NE(message_sha256(unset), message_sha256(zero));
}

}  // namespace
}  // namespace dex::server
