// Aliases through every process, on a tiny random model: C34 and F51 of api.md. An alias moves
// while it is asked, and each answer is of the one adapter that it names.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/e2e/small_job.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/http_client.h"
#include "tests/support/sanitizer.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using nlohmann::json;
using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
using testing::StartsWith;

// One platform with two adapters of one base.
class AliasesTest : public testing::Test {
 protected:
  // A streamed greedy answer.
  struct Answer {
    std::string adapter, alias;    // as it says itself
    std::vector<double> logprobs;  // of its tokens
    bool whole = false;            // it came to its end
    std::string bytes;             // as it came
    double seconds = 0;            // that it took
  };

  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data",
                                    support::write_tiny_model(*directory_ / "models"));
    platform_->start();
    const std::string file = platform_->upload_rows("code", "train", 20);
    for (const char* rate : {"0.01", "0.05"}) {
      const Outcome trained = platform_->ctl(support::tiny_job(file, "lora", rate));
      EXPECT_EQ(trained.code, 0) << trained.err;
      adapters_.push_back(trained.json().at("fine_tuned_model"));
    }
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    adapters_.clear();
  }

  // Head and body of the answer to a POST of JSON.
  static std::string post(const std::string& path, const json& body) {
    support::RawConnection connection(
        support::port_of(platform_->endpoints().at("http").get<std::string>()));
    const std::string text = body.dump();
    connection.send("POST " + path +
                    " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: " +
                    std::to_string(text.size()) + "\r\nConnection: close\r\n\r\n" + text);
    return connection.read_all();
  }
  static std::string load(const std::string& name, const std::string& adapter, bool in_place) {
    return post("/v1/load_lora_adapter",
                {{"lora_name", name}, {"lora_path", adapter}, {"load_inplace", in_place}});
  }

  static Answer ask(const std::string& model) {
    Answer answer;
    const auto began = std::chrono::steady_clock::now();
    answer.bytes = post("/v1/completions", {{"model", model},
                                            {"prompt", "def add(a, b):\n"},
                                            {"max_tokens", 24},
                                            {"temperature", 0},
                                            {"logprobs", 0},
                                            {"ignore_eos", true},
                                            {"stream", true}});
    answer.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::istringstream lines(answer.bytes);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: [DONE]")) answer.whole = true;
      if (!line.starts_with("data: {")) continue;
      const json chunk = json::parse(line.substr(6), nullptr, false);
      if (chunk.is_discarded() || !chunk.contains("choices")) continue;
      if (chunk.contains("dex") && chunk.at("dex").at("adapter").is_object()) {
        answer.adapter = chunk.at("dex").at("adapter").at("id");
        answer.alias = chunk.at("dex").at("adapter").value("alias_used", "");
      }
      const json& logprobs = chunk.at("choices").at(0).at("logprobs");
      if (!logprobs.is_object()) continue;
      for (const json& one : logprobs.at("token_logprobs"))
        answer.logprobs.push_back(one.get<double>());
    }
    return answer;
  }
  static double distance(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return INFINITY;
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
  }

  static double slowest(const std::vector<Answer>& answers) {
    double seconds = 0;
    for (const Answer& answer : answers) seconds = std::max(seconds, answer.seconds);
    return seconds;
  }
  // The answers of clients that ask `live` one stream after another as long as `meanwhile` runs.
  using Count = std::function<size_t()>;
  static std::vector<Answer> under_streams(const std::function<void(const Count&)>& meanwhile) {
    std::mutex mutex;
    std::vector<Answer> answers;  // guarded by mutex
    std::atomic<bool> over = false;
    std::vector<std::jthread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        while (!over) {
          Answer answer = ask("live");
          const std::lock_guard lock(mutex);
          answers.push_back(std::move(answer));
        }
      });
    }
    meanwhile([&] {
      const std::lock_guard lock(mutex);
      return answers.size();
    });
    over = true;
    clients.clear();
    return answers;
  }

  static constexpr int kMoves = 100, kClients = 3;
  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static std::vector<std::string> adapters_;
};
support::TemporaryDirectory* AliasesTest::directory_ = nullptr;
RunningPlatform* AliasesTest::platform_ = nullptr;
std::vector<std::string> AliasesTest::adapters_;

TEST_F(AliasesTest, AHundredMovesUnderStreamsMixNoAnswer) {
  std::map<std::string, std::vector<double>> own;  // what each adapter answers by its id
  for (const std::string& adapter : adapters_) {
    ASSERT_EQ(platform_->ctl({"adapters", "load", adapter}).code, 0);
    const Answer answer = ask(adapter);
    ASSERT_TRUE(answer.whole) << answer.bytes;
    ASSERT_EQ(answer.adapter, adapter);
    EXPECT_EQ(answer.alias, "");
    own[adapter] = answer.logprobs;
  }
  const double apart = distance(own[adapters_[0]], own[adapters_[1]]);
  ASSERT_GT(apart, 1e-3) << "two adapters that answer alike show nothing";

  ASSERT_THAT(load("live", adapters_[1], false), StartsWith("HTTP/1.1 200"));
  const auto alone = under_streams([](const Count& answered) {
    EXPECT_TRUE(support::eventually([&] { return answered() >= 30; }));
  });
  const auto answers = under_streams([](const Count&) {
    for (int move = 0; move < kMoves; ++move) {
      const std::string& target = adapters_[move % 2];
      // Now and then what it moves to must be loaded first.
      if (move % 25 == 0) post("/v1/unload_lora_adapter", {{"lora_name", target}});
      const std::string moved = load("live", target, true);
      EXPECT_THAT(moved, HasSubstr("Success: LoRA adapter 'live' added successfully.")) << move;
      // The gateway was told before the answer; only its own taking over may be under way.
      EXPECT_TRUE(support::eventually([&] { return ask("live").adapter == target; })) << move;
    }
  });

  std::map<std::string, int> seen;
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.whole) << "a move breaks no stream: " << answer.bytes;
    ASSERT_TRUE(own.contains(answer.adapter)) << answer.bytes;
    EXPECT_EQ(answer.alias, "live");
    EXPECT_LT(distance(answer.logprobs, own[answer.adapter]), apart / 10)
        << "says it is " << answer.adapter << ": " << answer.bytes;
    ++seen[answer.adapter];
  }
  EXPECT_EQ(seen.size(), 2U) << "both have answered";

  // What the moves and loads cost those who ask meanwhile.
  const double usual = slowest(alone), beside = slowest(answers);
  std::cout << answers.size() << " streams under " << kMoves
            << " moves of their alias: the slowest " << beside << " s, without moves " << usual
            << " s\n";
  support::figure("alias", "slowest_stream_s", usual);
  support::figure("alias", "slowest_stream_beside_moves_s", beside);
  if (!support::kSanitized) {
    EXPECT_LT(beside, 5 * usual + 5) << "no stream waits for a load";
  }
}

TEST_F(AliasesTest, NamesAreListedMovedBackAndDeleted) {
  const auto alias = [](const std::vector<std::string>& args) {
    return platform_->ctl(support::with({"adapters", "alias"}, args));
  };
  const Outcome made = alias({"steady", adapters_[0]});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(alias({"steady", adapters_[1]}).code, 0);
  EXPECT_EQ(platform_->ctl({"adapters", "get", "steady"}).json().at("id"), adapters_[1]);
  const Outcome answer = platform_->ctl({"generate", "steady", "--prompt", "x", "--max-tokens", "4",
                                         "--temperature", "0", "--no-stream"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json().at("adapter").at("id"), adapters_[1]);
  EXPECT_EQ(answer.json().at("adapter").at("alias_used"), "steady");

  const int port = support::port_of(platform_->endpoints().at("http").get<std::string>());
  EXPECT_THAT(support::http_get(port, "/v1/models"), HasSubstr("\"id\":\"steady\""));
  const std::string shown = support::http_get(port, "/v1/models/steady");
  EXPECT_THAT(shown, HasSubstr("\"id\":\"steady\""));
  EXPECT_THAT(shown, HasSubstr("\"root\":\"" + adapters_[1] + "\""));
  EXPECT_THAT(load("steady", adapters_[0], false), StartsWith("HTTP/1.1 400")) << "taken";
  EXPECT_THAT(load("steady", "nobodys", true), StartsWith("HTTP/1.1 404"));

  const Outcome back = alias({"steady", "--rollback"});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.json().at("adapter"), adapters_[0]);
  const Outcome used = platform_->ctl({"adapters", "delete", adapters_[0], "--yes"});
  EXPECT_EQ(used.code, 3);
  EXPECT_THAT(used.err, HasSubstr("ADAPTER_IN_USE"));
  EXPECT_THAT(post("/v1/unload_lora_adapter", {{"lora_name", "steady"}}),
              HasSubstr("Success: LoRA adapter 'steady' removed successfully."));
  EXPECT_THAT(support::http_get(port, "/v1/models/steady"), StartsWith("HTTP/1.1 404"));
  EXPECT_NE(platform_->ctl({"generate", "steady", "--prompt", "x"}).code, 0);
}

}  // namespace
}  // namespace dex
