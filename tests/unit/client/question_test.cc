// What dexctl asks before it deletes or starts something, and what becomes of an answer.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <string>

#include "client/cli/exit_code.h"
#include "client/cli/question.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

// Nobody listens at the client's address: what asks first reaches nobody.
class QuestionTest : public testing::Test {
 protected:
  // What `agreed` answers to this typing, at a terminal; `code_` is as it left it.
  bool answered(const std::string& typed) {
    Output output(Format::kTable, Terminal{.can_ask = true}, false, out_, err_);
    Context context{client_, output, {}};
    std::istringstream keys(typed);
    auto* keyboard = std::cin.rdbuf(keys.rdbuf());
    code_ = kDone;
    const bool yes = agreed(context, "Delete it?", code_);
    std::cin.rdbuf(keyboard);  // also forgets that an answer ended early
    return yes;
  }
  int run(const std::string& line) {
    CLI::App app;
    Action action;
    add_jobs(app, action);
    add_adapters(app, action);
    app.parse(line);
    return action(context_);
  }

  std::ostringstream out_, err_;
  Output output_{Format::kTable, Terminal{}, false, out_, err_};
  client::Client client_{client::Client::Options{.server = "127.0.0.1:1"}};
  Context context_{client_, output_, {}};
  int code_ = kDone;
};

TEST_F(QuestionTest, OnlyAYesIsOne) {
  for (const char* typed : {"y\n", "Y\n", "yes\n", "y"}) EXPECT_TRUE(answered(typed)) << typed;
  EXPECT_THAT(err_.str(), HasSubstr("Delete it? [y/N] "));
  EXPECT_EQ(err_.str().find("nothing"), std::string::npos);
  for (const char* typed : {"n\n", "\n", "", "yesterday\n"}) {
    EXPECT_FALSE(answered(typed)) << typed;
    EXPECT_EQ(code_, kInterrupted);
  }
  EXPECT_THAT(err_.str(), HasSubstr("nothing was deleted"));
}

TEST_F(QuestionTest, WithoutATerminalYesMustBeGiven) {
  for (const char* line :
       {"jobs delete ftjob-1", "adapters delete ft:small:alice::1", "jobs create --model small"}) {
    err_.str("");
    EXPECT_EQ(run(line), kUsage) << line;
    EXPECT_THAT(err_.str(), HasSubstr("give --yes")) << line;
  }
}

}  // namespace
}  // namespace dex::cli
