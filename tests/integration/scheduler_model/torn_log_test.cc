// A kill in the middle of the write of a script's transaction, made by hand at several of its
// bytes, and two starts of the real Redis: at the second it would apply what it kept of it
// (services/base/append_log.h).

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/redis_server.h"

namespace dex::model {
namespace {

namespace fs = std::filesystem;

class TornLogTest : public testing::Test {
 protected:
  void write(const std::string& value) {
    server_.call(
        {"EVAL", "redis.call('SET', 'a', ARGV[1]) redis.call('SET', 'b', ARGV[1])", "0", value});
  }
  [[nodiscard]] std::string read() {
    return server_.call({"GET", "a"}).text + " " + server_.call({"GET", "b"}).text;
  }
  [[nodiscard]] fs::path log() const {
    return server_.log_directory() / "appendonly.aof.1.incr.aof";
  }

  support::RedisServer server_;
};

TEST_F(TornLogTest, HalfAScriptIsNeverApplied) {
  write("1");
  for (const int64_t torn : {1, 8, 20, 32, 55}) {  // bytes that were not written any more
    const std::string name = "torn-" + std::to_string(torn);
    const auto before = static_cast<int64_t>(fs::file_size(log()));
    write(name);
    const auto whole = static_cast<int64_t>(fs::file_size(log()));
    ASSERT_GT(whole - before, torn + 20) << "a MULTI and more must be left";
    server_.kill();
    fs::resize_file(log(), static_cast<uintmax_t>(whole - torn));
    server_.start();
    EXPECT_EQ(read(), "1 1") << name;
    server_.call({"SET", "c", "another write goes behind it"});
    server_.call({"EVAL", "redis.call('SET', 'd', '1') redis.call('SET', 'e', '1')", "0"});
    server_.restart();
    EXPECT_EQ(read(), "1 1") << name;
  }
}

}  // namespace
}  // namespace dex::model
