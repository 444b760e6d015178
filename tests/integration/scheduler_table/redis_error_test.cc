// What each of Redis' errors means for a call and for a start (jobs.md §8, errors by prefix).
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/store/redis.h"
#include "scheduler/store/store.h"
#include "tests/support/fake_redis.h"

namespace dex::store {
namespace {

enum class Meaning {
  kLater,     // UNAVAILABLE, after trying again for the call's patience
  kStop,      // FAILED_PRECONDITION at once: an operator must act
  kOurFault,  // INTERNAL at once
};

struct RedisError {
  std::string words;
  Meaning meaning;
};

class RedisErrorTest : public testing::TestWithParam<RedisError> {
 protected:
  static constexpr std::chrono::milliseconds kPatience{200};

  // One run of the script claim; the classes of its tries.
  base::Status run_claim(const support::FakeRedis& server) {
    Redis::Options options;
    options.address = server.address();
    options.patience = kPatience;
    options.observe = [this](std::string_view, double, std::string_view error) {
      classes_.emplace_back(error);
    };
    classes_.clear();
    Redis redis(options);
    return redis.run(find_script("claim", all_scripts()), "dex:{s0}:", {"0"}).status();
  }

  // As long as it lasts the call is tried again; once it is over the call succeeds.
  void expect_waited_for(const std::string& words) {
    const support::FakeRedis lasting([&words](int) { return support::redis_error(words); });
    const auto status = run_claim(lasting);
    EXPECT_EQ(status.code(), base::Code::kUnavailable) << status.to_string();
    EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_GE(lasting.commands(), 2);
    EXPECT_LE(lasting.commands(), 5) << "the pauses grow: 20, 40, 80 ms";
    EXPECT_EQ(classes_,
              std::vector<std::string>(static_cast<size_t>(lasting.commands()), "transient"));

    const support::FakeRedis passing([&words](int n) {
      return n == 0 ? support::redis_error(words) : "*1\r\n" + support::redis_text("NONE");
    });
    const auto later = run_claim(passing);
    EXPECT_TRUE(later.ok()) << later.to_string();
    EXPECT_EQ(classes_, (std::vector<std::string>{"transient", ""}));
  }

  std::vector<std::string> classes_;
};

TEST_P(RedisErrorTest, EndsACallAsItsPrefixSays) {
  const RedisError& error = GetParam();
  if (error.meaning == Meaning::kLater) return expect_waited_for(error.words);
  const support::FakeRedis server([&error](int) { return support::redis_error(error.words); });
  const auto status = run_claim(server);
  const bool refused = error.meaning == Meaning::kStop;
  EXPECT_EQ(status.code(), refused ? base::Code::kFailedPrecondition : base::Code::kInternal)
      << status.to_string();
  EXPECT_EQ(status.reason(), refused ? "STORE_REFUSED" : "INTERNAL");
  EXPECT_NE(status.message().find("claim"), std::string::npos) << status.message();
  // The operator is told Redis' words; a fault of ours only the log.
  EXPECT_EQ(status.message().find(error.words) != std::string::npos, refused) << status.message();
  EXPECT_EQ(classes_, std::vector<std::string>{refused ? "forbidden" : "other"});
  EXPECT_EQ(server.commands(), 1) << "nothing is tried again";
}

TEST_P(RedisErrorTest, IsWaitedForAtAStartOrEndsIt) {
  const RedisError& error = GetParam();
  const support::FakeRedis server([&error](int) { return support::redis_error(error.words); });
  Store::Options options;
  options.redis.address = server.address();
  options.redis.patience = kPatience;
  const auto status = Store(options).preflight();
  // A scheduler starts in front of a Redis that is away; one that it may not use ends it.
  const bool ends = error.meaning == Meaning::kStop;
  EXPECT_EQ(status.code(), ends ? base::Code::kFailedPrecondition : base::Code::kUnavailable)
      << status.to_string();
  EXPECT_EQ(status.reason(), ends ? "STORE_REFUSED" : "STORE_UNAVAILABLE");
}

INSTANTIATE_TEST_SUITE_P(
    Prefixes, RedisErrorTest,
    testing::Values(
        RedisError{"LOADING Redis is loading the dataset in memory", Meaning::kLater},
        RedisError{"BUSY Redis is busy running a script.", Meaning::kLater},
        RedisError{"MISCONF Errors writing to the AOF file: No space left", Meaning::kLater},
        RedisError{"OOM command not allowed when used memory > 'maxmemory'.", Meaning::kLater},
        RedisError{"READONLY You can't write against a read only replica.", Meaning::kLater},
        RedisError{"CLUSTERDOWN The cluster is down", Meaning::kLater},
        RedisError{"TRYAGAIN Multiple keys request during rehashing of slot", Meaning::kLater},
        RedisError{"MOVED 3999 127.0.0.1:6381", Meaning::kStop},
        RedisError{"ASK 3999 127.0.0.1:6381", Meaning::kStop},
        RedisError{"NOAUTH Authentication required.", Meaning::kStop},
        RedisError{"WRONGPASS invalid username-password pair", Meaning::kStop},
        RedisError{"NOPERM this user has no permissions to run the 'evalsha' command",
                   Meaning::kStop},
        RedisError{"ERR unknown command 'EVALSHA'", Meaning::kOurFault},
        RedisError{"WRONGTYPE Operation against a key", Meaning::kOurFault}),
    [](const testing::TestParamInfo<RedisError>& info) {
      return info.param.words.substr(0, info.param.words.find(' '));
    });

// The one error that a call mends itself: the script is loaded and sent again, once.
TEST(RedisNoScriptTest, IsLoadedAndSentAgain) {
  const support::FakeRedis server([](int n) {
    if (n == 0) return support::redis_error("NOSCRIPT No matching script.");
    return n == 1 ? support::redis_text("the SHA-1") : "*1\r\n" + support::redis_text("NONE");
  });
  Redis::Options options;
  options.address = server.address();
  Redis redis(options);
  const Script script("small", "return 1");
  const auto reply = redis.run(script, "dex:{s0}:", {"0"});
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->str(0), "NONE");
  EXPECT_EQ(server.commands(), 3);
}

}  // namespace
}  // namespace dex::store
