// Every verb of dexctl against a real platform: what people read, what scripts read, exit codes.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "tests/e2e/small_job.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr const char* kModel = support::kTinyModel;

// One platform with one finished job for all tests.
class DexctlTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data",
                                    support::write_tiny_model(*directory_ / "models"));
    platform_->start();
    file_ = new std::string(platform_->upload_rows("code", "train", 20));
    const std::string validation = platform_->upload_rows("code", "validation", 10);
    const Outcome followed = platform_->ctl(
        support::with(support::small_job(*file_, validation, 4, kModel), {"--follow"}));
    EXPECT_EQ(followed.code, 0) << followed.err;
    job_ = new nlohmann::json(followed.json());
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    delete file_;
    delete job_;
  }

  static std::string id() { return job_->at("id"); }
  static std::string adapter() { return job_->at("fine_tuned_model"); }

  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static std::string* file_;
  static nlohmann::json* job_;
};
support::TemporaryDirectory* DexctlTest::directory_ = nullptr;
RunningPlatform* DexctlTest::platform_ = nullptr;
std::string* DexctlTest::file_ = nullptr;
nlohmann::json* DexctlTest::job_ = nullptr;

TEST_F(DexctlTest, WhatPeopleRead) {
  struct Case {
    std::vector<std::string> args;
    const char* says;  // a regular expression, over both outputs
  };
  const Case cases[] = {
      {{"files", "list"}, "code.train.jsonl"},
      {{"files", "get", *file_}, "ready"},
      {{"files", "findings", *file_}, "nothing|LINE"},
      {{"files", "validate", *file_, "--model", kModel}, "trained tokens"},
      {{"files", "preview", *file_, "--model", kModel, "--limit", "2"},
       "line 1[:,].* tokens trained"},
      {{"jobs", "list"}, "succeeded"},
      {{"jobs", "get", id()}, "succeeded"},
      {{"jobs", "events", id()}, "eval_complete"},
      {{"jobs", "heads", id()}, "chosen ones in brackets"},
      {{"jobs", "watch", id()}, "succeeded"},
      {{"adapters", "list"}, "ft:tiny"},
      {{"adapters", "get", adapter()}, "KVO"},
      {{"adapters", "load", adapter()}, "ft:tiny"},
      {{"adapters", "unload", adapter()}, "ft:tiny"},
      {{"presets", "list"}, "long_text"},
      {{"presets", "show", "code"}, "lambda"},
      {{"models", "list"}, kModel},
      {{"models", "show", kModel}, "Tiny, random"},
      {{"version"}, "server"},
      {{"chat", kModel, "--message", "Say hello.", "--max-tokens", "4"}, "."},
  };
  for (const auto& test : cases) {
    const Outcome outcome = platform_->plain_ctl(test.args);
    const std::string command = test.args[0] + (test.args.size() > 1 ? " " + test.args[1] : "");
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, ContainsRegex(test.says)) << command;
    EXPECT_EQ(outcome.out.find("_UNSPECIFIED"), std::string::npos) << command;
  }
}

TEST_F(DexctlTest, StreamedAndWholeTextAreTheSame) {
  const std::vector<std::string> args = {
      "generate", adapter(),       "--prompt", "def add(a, b):", "--max-tokens",
      "12",       "--temperature", "0.8",      "--seed",         "3"};
  const Outcome streamed = platform_->plain_ctl(args);
  const Outcome whole = platform_->plain_ctl(support::with(args, {"--no-stream"}));
  ASSERT_EQ(streamed.code, 0) << streamed.err;
  EXPECT_EQ(streamed.out, whole.out);
  EXPECT_EQ(platform_->ctl(args).json().at("text").get<std::string>() + "\n", whole.out);
  const auto chat = platform_->ctl({"chat", kModel, "--message", "Hi", "--max-tokens", "3"});
  EXPECT_EQ(chat.json().at("model"), kModel);
}

TEST_F(DexctlTest, LambdaIsScaledByTheRequest) {
  const auto text = [&](const std::vector<std::string>& more) {
    const Outcome outcome = platform_->ctl(support::with(
        {"generate", adapter(), "--prompt", "def add(a, b):", "--max-tokens", "12", "--seed", "3"},
        more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const auto plain = text({}), one = text({"--lambda-scale", "1"}),
             zero = text({"--lambda-scale", "0"});
  EXPECT_EQ(one.at("text"), plain.at("text"));
  EXPECT_EQ(plain.at("adapter").at("dex_lambda_scale"), 1.0);
  EXPECT_EQ(zero.at("adapter").at("dex_lambda_scale"), 0.0);
  const Outcome base = platform_->ctl(
      {"generate", kModel, "--prompt", "x", "--max-tokens", "1", "--lambda-scale", "0.5"});
  EXPECT_EQ(base.code, 3);
  EXPECT_THAT(base.err, HasSubstr("dex_lambda_scale has no effect, got 0.5"));
}

TEST_F(DexctlTest, ScriptsFindWhatTheyRelyOn) {
  for (const char* key : {"id", "state", "attempt", "progress", "fine_tuned_model"}) {
    EXPECT_TRUE(job_->contains(key)) << key;
  }
  const auto files = platform_->ctl({"files", "list"}).json().at("files");
  EXPECT_GE(files.size(), 2u);
  std::istringstream ids(platform_->plain_ctl({"jobs", "list", "--output", "id"}).out);
  std::string first;
  std::getline(ids, first);
  EXPECT_TRUE(first.starts_with("ftjob-")) << first;
  // A path in place of a file id finds the file that is there.
  const auto copy = *directory_ / "again.jsonl";
  EXPECT_EQ(platform_->plain_ctl({"files", "download", *file_, copy}).code, 0);
  const Outcome estimate = platform_->ctl(
      {"jobs", "estimate", "--model", kModel, "--training-file", copy, "--max-steps", "4"});
  EXPECT_EQ(estimate.code, 0) << estimate.err;
  EXPECT_THAT(estimate.err, HasSubstr("is there already as"));
  EXPECT_EQ(platform_->ctl({"files", "list"}).json().at("files").size(), files.size());
}

// A worker out of service takes no jobs, the queue says so, and a quota is changed by its etag
// only.
TEST_F(DexctlTest, OperatorsSeeAndChangeWhatWorksAndWaits) {
  const auto workers = platform_->ctl({"workers", "list"}).json().at("workers");
  ASSERT_EQ(workers.size(), 1u);
  const auto worker = workers.at(0).at("id").get<std::string>();
  EXPECT_EQ(platform_->ctl({"workers", "drain", worker}).json().at("state"), "STATE_DRAINING");
  const Outcome job = platform_->ctl(support::small_job(*file_, "", 2, kModel));
  ASSERT_EQ(job.code, 0) << job.err;
  const auto waiting = job.json().at("id").get<std::string>();
  const Outcome queue = platform_->plain_ctl({"queue"});
  EXPECT_EQ(queue.code, 0) << queue.err;
  EXPECT_THAT(queue.out, HasSubstr(waiting));
  EXPECT_THAT(queue.out, HasSubstr("for a worker"));
  EXPECT_THAT(queue.err, HasSubstr("workers that take jobs: 0"));
  EXPECT_EQ(platform_->ctl({"workers", "drain", worker, "--undo"}).json().at("state"), "STATE_UP");
  EXPECT_EQ(platform_->ctl({"jobs", "watch", waiting}).code, 0);

  const auto quota = platform_->ctl({"quota", "get"}).json();
  const Outcome more = platform_->ctl(
      {"quota", "set", "--max-running", "3", "--etag", quota.at("etag").get<std::string>()});
  EXPECT_EQ(more.json().at("max_running"), 3) << more.err;
  const Outcome stale = platform_->ctl(
      {"quota", "set", "--max-running", "4", "--etag", quota.at("etag").get<std::string>()});
  EXPECT_NE(stale.code, 0);
  EXPECT_THAT(stale.err, HasSubstr("ETAG_MISMATCH"));
  const Outcome bad = platform_->ctl({"quota", "set", "--weight", "0"});
  EXPECT_EQ(bad.code, 3) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("weight must be 0.001 to 1000"));
}

TEST_F(DexctlTest, FilesGoWhenNothingNeedsThem) {
  const auto path = *directory_ / "own.jsonl";
  {
    std::ofstream out(path);
    for (int i = 0; i < 12; ++i) out << R"({"text": "row )" << i << "\"}\n";
  }
  const std::string own = platform_->ctl({"files", "upload", path}).json().at("id");
  EXPECT_EQ(platform_->ctl({"files", "delete", own}).code, 0);
  const Outcome gone = platform_->ctl({"files", "get", own});
  EXPECT_EQ(gone.code, 3);
  EXPECT_THAT(gone.err, HasSubstr("RESOURCE_NOT_FOUND"));
}

TEST_F(DexctlTest, ExitCodesTellWhoHasToAct) {
  EXPECT_EQ(platform_->plain_ctl({"jobs", "frobnicate"}).code, 2);
  EXPECT_EQ(platform_->plain_ctl({"jobs", "create", "--model", kModel}).code, 2) << "needs --yes";
  EXPECT_EQ(platform_->plain_ctl({"jobs", "get", "ftjob-00000000000000000000000000"}).code, 3);
  EXPECT_EQ(platform_->plain_ctl({"jobs", "cancel", id()}).code, 3) << "it has ended";
  // Nobody there: the operator's matter, told with the address and within the time given.
  const Outcome nobody = support::run_program(
      "dexctl", {"models", "list", "--server", "127.0.0.1:1", "--timeout", "2"});
  EXPECT_EQ(nobody.code, 4) << nobody.err;
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
}

// The tiny model has a tokenizer, so the guard's own text will do.
TEST_F(DexctlTest, GuardAndGatesDecideWhatBecomesOfAJob) {
  const auto job = [](const std::vector<std::string>& more) {
    return platform_->ctl(support::with(support::small_job(*file_, *file_, 4, kModel), more));
  };
  const Outcome blocked =
      job({"--base-guard", "50", "--promote-if", "held_out.loss<=-100", "--follow"});
  EXPECT_EQ(blocked.code, 7) << blocked.err;
  const auto found = blocked.json();
  EXPECT_EQ(found.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(found.at("promotable"), false);
  EXPECT_EQ(found.at("gate_results").at(0).at("gate"), "held_out.loss");
  EXPECT_GT(found.at("metrics").at("base_kl").get<double>(), 0);
  EXPECT_THAT(blocked.err, HasSubstr("KL to the base 0 nats a token on the probe set at step 0"));
  EXPECT_THAT(blocked.err, HasSubstr("gate held_out.loss not passed"));
  const auto adapter =
      platform_->ctl({"adapters", "get", found.at("fine_tuned_model").get<std::string>()}).json();
  EXPECT_EQ(adapter.at("promotable"), false);

  const Outcome tripped = job({"--base-guard", "1e-12", "--follow"});
  EXPECT_EQ(tripped.code, 3) << tripped.err;
  EXPECT_EQ(tripped.json().at("error").at("code"), "base_guard_tripped");
  EXPECT_EQ(tripped.json().at("fine_tuned_model"), "");
}

TEST_F(DexctlTest, SideBySideMarksTheTokensThatDiffer) {
  const std::vector<std::string> args = {
      "compare",        kModel,         adapter(), adapter() + "@0", "--prompt",
      "def add(a, b):", "--max-tokens", "12",      "--seed",         "3"};
  const Outcome shown = platform_->plain_ctl(args);
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr(adapter() + "@0\n"));
  EXPECT_THAT(shown.err, HasSubstr("seed 3"));
  // Each is what generate says alone; scripts get a reply a line.
  const Outcome lines = platform_->plain_ctl(support::with(args, {"--output", "jsonl"}));
  std::istringstream replies(lines.out);
  for (const auto& model : {std::string(kModel), adapter()}) {
    std::string line;
    ASSERT_TRUE(std::getline(replies, line)) << lines.err;
    const auto alone = platform_->ctl(
        {"generate", model, "--prompt", "def add(a, b):", "--max-tokens", "12", "--seed", "3"});
    EXPECT_EQ(nlohmann::json::parse(line).at("text"), alone.json().at("text")) << model;
  }
  // A checkpoint stands for what its job has published.
  const std::string step = job_->at("metrics").at("served_step").dump();
  const std::string last = "ftckpt-" + id().substr(std::string("ftjob-").size()) + "-" + step;
  const Outcome checkpoint =
      platform_->plain_ctl({"compare", adapter(), last, "--prompt", "x", "--max-tokens", "4"});
  EXPECT_EQ(checkpoint.code, 0) << checkpoint.err;
  EXPECT_THAT(checkpoint.err, HasSubstr("all the same"));
}

TEST_F(DexctlTest, TyposOfIdsAndCommandsAreToldWithWhatIsThere) {
  const Outcome model = platform_->plain_ctl({"models", "show", std::string(kModel) + "x"});
  EXPECT_EQ(model.code, 3);
  EXPECT_THAT(model.err, HasSubstr("did you mean " + std::string(kModel) + "?"));
  std::string wrong = id();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const Outcome job = platform_->plain_ctl({"jobs", "get", wrong});
  EXPECT_EQ(job.code, 3);
  EXPECT_THAT(job.err, HasSubstr("did you mean " + id() + "?"));
  EXPECT_THAT(platform_->plain_ctl({"job", "list"}).err, HasSubstr("did you mean jobs?"));
}

// The same change with the same id has one effect; with another id it is another.
TEST_F(DexctlTest, ARequestIdMakesARepeatHarmless) {
  const auto created = [&](const std::string& request) {
    const Outcome job = platform_->ctl(
        support::with(support::small_job(*file_, "", 2, kModel), {"--request-id", request}));
    EXPECT_EQ(job.code, 0) << job.err;
    return job.json().at("id").get<std::string>();
  };
  const std::string first = created("cli-test-1");
  EXPECT_EQ(created("cli-test-1"), first);
  EXPECT_NE(created("cli-test-2"), first);
  const Outcome bad = platform_->ctl(
      support::with(support::small_job(*file_, "", 2, kModel), {"--request-id", "two words"}));
  EXPECT_EQ(bad.code, 3);
  EXPECT_THAT(bad.err, HasSubstr("request_id"));
}

// What shells ask for behind a half-typed line, with the platform's own ids.
TEST_F(DexctlTest, ShellsAreOfferedIdsOfThePlatform) {
  const auto offered = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "--server", platform_->server()});
    const Outcome outcome = support::run_program("dexctl", words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(offered({"jobs", "watch", "ftjob-"}), HasSubstr(id() + "\n"));
  EXPECT_THAT(offered({"compare", "ft:"}), HasSubstr(adapter() + "\n"));
  EXPECT_THAT(offered({"jobs", "create", "--preset", "co"}), HasSubstr("code\n"));
  const Outcome nobody =
      support::run_program("dexctl", {"__complete", "--server", "127.0.0.1:1", "jobs", "get", ""});
  EXPECT_EQ(nobody.code, 0);
  EXPECT_EQ(nobody.out, "") << "nothing to offer, and nothing that a shell would take for it";
}

TEST_F(DexctlTest, CtrlCEndsTheWatchingAndNotTheJob) {
  const std::string job =
      platform_->ctl(support::small_job(*file_, *file_, 100'000, kModel)).json().at("id");
  base::Subprocess::Options options;
  options.program = (support::build_dir() / "bin/dexctl").string();
  options.args = {"jobs", "watch", job, "--server", platform_->server()};
  options.stdout_file = *directory_ / "watch.out";
  options.stderr_file = *directory_ / "watch.err";
  auto watch = base::Subprocess::start(options);
  ASSERT_TRUE(watch.ok());
  const auto said = [&] {
    std::ostringstream text;
    text << std::ifstream(*directory_ / "watch.err").rdbuf();
    return text.str();
  };
  ASSERT_TRUE(support::eventually([&] { return said().find(job) != std::string::npos; }, 60'000));
  (*watch)->signal(SIGINT);
  EXPECT_EQ((*watch)->wait(30'000)->code, 130);
  EXPECT_THAT(said(), HasSubstr("dexctl jobs watch " + job + " --after"));
  EXPECT_EQ(platform_->ctl({"jobs", "cancel", job, "--wait"}).code, 0) << "it was still there";
  EXPECT_EQ(platform_->plain_ctl({"jobs", "watch", job}).code, 5) << "a cancelled job";
}

}  // namespace
}  // namespace dex
