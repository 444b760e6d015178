// dex-engine's frames, spoken as the agent does, over a real socket pair; and its command line as a
// process.
#include "tests/unit/worker/serve/frame_server_fixture.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/base/subprocess.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"

namespace dex::serve {
namespace {

TEST_F(FrameServerTest, AnswersBaseAndAdapterSideBySide) {
  start();
  load("ft:tiny", "adapter");
  const auto loaded = next();
  ASSERT_TRUE(loaded.has_adapter());
  EXPECT_EQ(loaded.adapter().state(), pb::Replica::STATE_LOADED) << loaded.adapter().error();
  EXPECT_GT(loaded.adapter().bytes(), 0);
  for (uint64_t i = 1; i <= 14; ++i) send(generate(i, i > 7 ? "ft:tiny" : ""));
  const auto replies = collect(14);
  for (uint64_t i = 1; i <= 7; ++i) {
    const Reply& base = replies.at(i);
    const Reply& adapted = replies.at(i + 7);
    ASSERT_TRUE(base.finish && adapted.finish);
    EXPECT_EQ(base.start->model(), "tiny");
    EXPECT_FALSE(base.start->has_adapter());
    EXPECT_EQ(base.start->id(), "gen-" + std::to_string(i));
    EXPECT_EQ(base.start->seed(), i % 7);
    EXPECT_EQ(adapted.start->model(), "ft:tiny");
    EXPECT_EQ(adapted.start->adapter().version(), std::string(12, '4'));
    EXPECT_NE(base.ids, adapted.ids);
    EXPECT_EQ(base.ids.size(), 12U);
    EXPECT_EQ(base.finish->finish_reason(), pb::FINISH_REASON_LENGTH);
    EXPECT_EQ(base.finish->usage().prompt_tokens(), 4);
    EXPECT_EQ(base.finish->usage().completion_tokens(), 12);
    EXPECT_EQ(base.finish->usage().total_tokens(), 16);
  }
  EXPECT_NE(replies.at(1).ids, replies.at(2).ids);  // other seeds
}

// The branch is taken apart when the first such request comes, while others go on.
TEST_F(FrameServerTest, ScalesLambdaRequestByRequest) {
  start();
  load("ft:tiny", "adapter");
  EXPECT_EQ(next().adapter().state(), pb::Replica::STATE_LOADED);
  const auto scaled = [](uint64_t request, double scale) {
    auto command = generate(request, "ft:tiny");
    command.mutable_generate()->mutable_body()->set_seed(3);
    command.mutable_generate()->mutable_body()->set_max_tokens(200);
    command.mutable_generate()->mutable_body()->set_dex_lambda_scale(scale);
    return command;
  };
  auto plain = scaled(1, 1);
  plain.mutable_generate()->mutable_body()->clear_dex_lambda_scale();
  auto base = scaled(6, 0.5);
  base.mutable_generate()->clear_adapter();
  for (const auto& command :
       {plain, scaled(2, 1), scaled(3, 0.5), scaled(4, 0), scaled(5, 0.5), base, scaled(7, 1.5)})
    send(command);
  const auto replies = collect(7);
  for (uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(replies.at(i).finish) << i;
  EXPECT_EQ(replies.at(1).ids, replies.at(2).ids);
  EXPECT_EQ(replies.at(3).ids, replies.at(5).ids);
  EXPECT_NE(replies.at(1).ids, replies.at(4).ids);
  EXPECT_NE(replies.at(3).ids, replies.at(4).ids);
  const std::map<uint64_t, double> told = {{1, 1}, {2, 1}, {3, 0.5}, {4, 0}, {5, 0.5}};
  for (const auto& [request, scale] : told) {
    const auto& used = replies.at(request).start->adapter();
    EXPECT_TRUE(used.has_dex_lambda_scale());
    EXPECT_EQ(used.dex_lambda_scale(), scale) << request;
  }
  EXPECT_EQ(replies.at(6).error->reason(), "UNUSED_FIELD");
  EXPECT_EQ(replies.at(6).error->field(), "dex_lambda_scale");
  EXPECT_EQ(replies.at(7).error->reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_FALSE(replies.at(7).start);
}

TEST_F(FrameServerTest, AScaledRequestThatWaitsCanBeCancelledAndAMissingFolderIsSaid) {
  start();
  load("ft:tiny", "adapter");
  EXPECT_EQ(next().adapter().state(), pb::Replica::STATE_LOADED);
  std::filesystem::rename(dir / "adapter", dir / "elsewhere");
  auto lost = generate(1, "ft:tiny");
  lost.mutable_generate()->mutable_body()->set_dex_lambda_scale(0.5);
  send(lost);
  EXPECT_EQ(collect(1).at(1).error->reason(), "ARTIFACT_CORRUPT");
  send(generate(2, "ft:tiny"));  // the folded one still answers
  EXPECT_TRUE(collect(1).at(2).finish);

  std::filesystem::rename(dir / "elsewhere", dir / "adapter");
  auto long_one = generate(3, "ft:tiny");
  long_one.mutable_generate()->mutable_body()->set_dex_lambda_scale(0.5);
  long_one.mutable_generate()->mutable_body()->set_max_tokens(250);
  send(long_one);
  EngineCommand cancel;
  cancel.mutable_cancel()->set_request(3);
  send(cancel);
  const auto reply = collect(1).at(3);
  ASSERT_TRUE(reply.finish);
  if (reply.ids.size() < 250) {
    EXPECT_EQ(reply.finish->finish_reason(), pb::FINISH_REASON_CANCELLED);
  }
}

TEST_F(FrameServerTest, ARefusedAdapterHurtsNobody) {
  start();
  load("ft:foreign", "foreign");
  load("ft:missing", "nowhere");
  for (const char* id : {"ft:foreign", "ft:missing"}) {
    const auto report = next();
    ASSERT_TRUE(report.has_adapter());
    EXPECT_EQ(report.adapter().id(), id);
    EXPECT_EQ(report.adapter().state(), pb::Replica::STATE_FAILED);
    EXPECT_FALSE(report.adapter().error().empty());
  }
  send(generate(1, "ft:foreign"));
  send(generate(2));
  const auto replies = collect(2);
  EXPECT_EQ(replies.at(1).error->reason(), "ADAPTER_LOADING");
  EXPECT_TRUE(replies.at(2).finish);
}

TEST_F(FrameServerTest, UnloadIsToldAndRepeatable) {
  start();
  load("ft:tiny", "adapter");
  EXPECT_EQ(next().adapter().state(), pb::Replica::STATE_LOADED);
  for (int i = 0; i < 2; ++i) {
    load("ft:tiny", "adapter", false);
    const auto report = next();
    ASSERT_TRUE(report.has_adapter());
    EXPECT_EQ(report.adapter().state(), pb::Replica::STATE_UNSPECIFIED);
  }
  send(generate(1, "ft:tiny"));
  EXPECT_EQ(collect(1).at(1).error->reason(), "ADAPTER_LOADING");
}

TEST_F(FrameServerTest, BadRequestsNameTheirField) {
  start();
  auto hot = generate(1);
  hot.mutable_generate()->mutable_body()->set_temperature(3);
  auto text = generate(2);
  text.mutable_generate()->mutable_body()->set_prompt("no tokenizer here");
  auto nothing = generate(3);
  nothing.mutable_generate()->mutable_body()->clear_input();
  auto far = generate(4);
  far.mutable_generate()->mutable_body()->set_max_tokens(4'000'000'000U);
  auto hasty = generate(5);
  hasty.mutable_generate()->mutable_body()->set_timeout_seconds(-1);
  for (const auto& command : {hot, text, nothing, far, hasty}) send(command);
  const auto replies = collect(5);
  EXPECT_EQ(replies.at(1).error->field(), "temperature");
  EXPECT_EQ(replies.at(1).error->code(), static_cast<int>(base::Code::kInvalidArgument));
  EXPECT_THAT(replies.at(2).error->message(), ::testing::HasSubstr("tokenizer"));
  EXPECT_EQ(replies.at(3).error->reason(), "MISSING_FIELD");
  EXPECT_EQ(replies.at(4).error->reason(), "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_EQ(replies.at(5).error->field(), "timeout_seconds");
  for (const auto& [request, reply] : replies) EXPECT_FALSE(reply.start) << request;
}

TEST_F(FrameServerTest, CancelEndsAStream) {
  start();
  auto long_one = generate(1);
  long_one.mutable_generate()->mutable_body()->set_max_tokens(250);
  send(long_one);
  EngineCommand cancel;
  cancel.mutable_cancel()->set_request(1);
  send(cancel);
  const auto reply = collect(1).at(1);
  ASSERT_TRUE(reply.finish);
  // It may have been quicker than the cancel; else it says so.
  if (reply.ids.size() < 250) {
    EXPECT_EQ(reply.finish->finish_reason(), pb::FINISH_REASON_CANCELLED);
  }
}

TEST_F(FrameServerTest, StopsInOrder) {
  start();
  send(generate(1));
  EngineCommand stop;
  stop.mutable_stop()->set_grace_ms(20'000);
  send(stop);
  EXPECT_TRUE(collect(1).at(1).finish);  // what runs may end
  server.join();
  EXPECT_EQ(exit, 0);
}

TEST_F(FrameServerTest, EndsWithTheAgent) {
  start();
  agent->shutdown();
  server.join();
  EXPECT_EQ(exit, 0);
}

TEST_F(FrameServerTest, AFrameThatIsNoCommandEndsIt) {
  start();
  ASSERT_TRUE(agent->write("\xFF\xFF\xFF", 1000).ok());
  server.join();
  EXPECT_EQ(exit, 1);
}

TEST_F(FrameServerTest, AModelThatCannotBeLoadedEndsIt) {
  EngineCommand command;
  command.mutable_start()->set_model_dir((dir / "nowhere").string());
  send(command);
  server.join();
  EXPECT_EQ(exit, kBrokenModel);
}

// ---- the program ----

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    testing::write_tiny_model(dir / "model");
    testing::write_tiny_adapter(dir / "adapter", dir / "model");
    testing::write_foreign_adapter(dir / "foreign");
  }
  struct Result {
    int code;
    std::string out, error;
  };
  Result run(std::vector<std::string> args) {
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-engine").string();
    options.args = std::move(args);
    options.stdout_file = dir / ("out" + std::to_string(++runs));
    options.stderr_file = dir / ("err" + std::to_string(runs));
    auto process = base::Subprocess::start(options);
    EXPECT_TRUE(process.ok()) << process.status().to_string();
    const auto exit = (*process)->wait(60'000);
    EXPECT_TRUE(exit && exit->signal == 0);
    return {exit ? exit->code : -1, support::content_of(options.stdout_file),
            support::content_of(options.stderr_file)};
  }
  std::string model() { return (dir / "model").string(); }

  support::TemporaryDirectory dir;
  int runs = 0;
};

TEST_F(ProgramTest, ScoresWithoutATokenizer) {
  const auto base = run({"score", "--model", model(), "--dtype", "f32", "--tokens", "5,9,14,3"});
  ASSERT_EQ(base.code, 0) << base.error;
  const auto values = nlohmann::json::parse(base.out);
  ASSERT_EQ(values.size(), 3U);
  for (const double value : values) EXPECT_LT(value, 0);
  const auto adapted = run({"score", "--model", model(), "--adapter", (dir / "adapter").string(),
                            "--dtype", "f32", "--tokens", "5,9,14,3"});
  ASSERT_EQ(adapted.code, 0) << adapted.error;
  EXPECT_NE(nlohmann::json::parse(adapted.out), values);
}

TEST_F(ProgramTest, ScoresAtAScaleOfLambda) {
  const auto score = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "score",   "--model", model(),    "--adapter", (dir / "adapter").string(),
        "--dtype", "f32",     "--tokens", "5,9,14,3"};
    args.insert(args.end(), more.begin(), more.end());
    const auto got = run(args);
    EXPECT_EQ(got.code, 0) << got.error;
    return got.out;
  };
  const std::string plain = score({}), half = score({"--lambda-scale", "0.5"});
  EXPECT_EQ(score({"--lambda-scale", "1"}), plain);
  EXPECT_NE(half, plain);
  EXPECT_NE(score({"--lambda-scale", "0"}), half);
  // Generating at scale 0 says what it is told to, and a base has nothing to scale.
  const auto made =
      run({"generate", "--model", model(), "--adapter", (dir / "adapter").string(),
           "--lambda-scale", "0", "--tokens", "5,9", "--max-tokens", "3", "--ignore-eos"});
  EXPECT_EQ(made.code, 0) << made.error;
  const auto base = run({"score", "--model", model(), "--lambda-scale", "0.5", "--tokens", "1,2"});
  EXPECT_EQ(base.code, 1);
  EXPECT_THAT(base.error, ::testing::HasSubstr("dex_lambda_scale has no effect, got 0.5"));
}

TEST_F(ProgramTest, GeneratesIdsWithoutATokenizerTheSameForTheSameSeed) {
  const std::vector<std::string> args = {"generate", "--model",      model(), "--tokens",
                                         "5,9,14",   "--max-tokens", "9",     "--seed",
                                         "3",        "--ignore-eos"};
  const auto first = run(args), second = run(args);
  ASSERT_EQ(first.code, 0) << first.error;
  EXPECT_EQ(std::ranges::count(first.out, ','), 8);
  EXPECT_EQ(first.out, second.out);
}

TEST_F(ProgramTest, MeasuresInOneLine) {
  const auto got = run({"measure", "--model", model(), "--prompt-tokens", "20", "--new-tokens", "5",
                        "--batch", "2", "--repeats", "2", "--threads", "1"});
  ASSERT_EQ(got.code, 0) << got.error;
  const auto figures = nlohmann::json::parse(got.out);
  EXPECT_GT(figures["decode_tok_s"]["median"].get<double>(), 0);
  EXPECT_EQ(figures["generated"].size(), 5U);
}

TEST_F(ProgramTest, MeasuresWithAnAdapterForEachSequence) {
  const auto folder = dir / "adapters";
  std::filesystem::create_directories(folder);
  for (const char* name : {"b", "a", "c"}) testing::write_tiny_adapter(folder / name, model());
  const auto measure = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "measure", "--model", model(), "--prompt-tokens", "12", "--batch",   "4", "--new-tokens",
        "5",       "--dtype", "f32",   "--repeats",       "1",  "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  };
  const auto all = measure({"--adapters", folder.string()});
  ASSERT_EQ(all.code, 0) << all.error;
  const auto figures = nlohmann::json::parse(all.out);
  EXPECT_EQ(figures["adapters"], 3);
  EXPECT_GT(figures["adapter_bytes"].get<int64_t>(), 0);
  const auto one = measure({"--adapter", (folder / "a").string()});
  ASSERT_EQ(one.code, 0) << one.error;
  EXPECT_EQ(nlohmann::json::parse(one.out)["generated"], figures["generated"]);
  const auto apart = measure({"--adapters", folder.string(), "--distinct", "2", "--branch-apart"});
  ASSERT_EQ(apart.code, 0) << apart.error;
  EXPECT_EQ(nlohmann::json::parse(apart.out)["adapters"], 2);

  const auto refused = measure({"--adapters", folder.string(), "--distinct", "4"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, ::testing::HasSubstr("4 or more folders of adapters, has 3"));
  EXPECT_EQ(measure({"--distinct", "2"}).code, 2);
}

// The model with unilm's attention says as a DiffLlama what the DiffLlama says that it was made of.
TEST_F(ProgramTest, ConvertsUnilmsAttention) {
  testing::write_unilm(dir / "diffllama", dir / "unilm");
  const auto made =
      run({"convert", "--model", (dir / "unilm").string(), "--out", (dir / "converted").string()});
  ASSERT_EQ(made.code, 0) << made.error;
  EXPECT_EQ(nlohmann::json::parse(made.out).at("dtype"), "float32");
  const auto scores = [&](const char* folder) {
    const auto got = run({"score", "--model", (dir / folder).string(), "--dtype", "f32", "--tokens",
                          "5,9,14,3,60,2"});
    EXPECT_EQ(got.code, 0) << got.error;
    return nlohmann::json::parse(got.out).get<std::vector<double>>();
  };
  const auto was = scores("diffllama"), is = scores("converted");
  ASSERT_EQ(is.size(), 5U);
  for (size_t i = 0; i < is.size(); ++i) EXPECT_NEAR(is[i], was.at(i), 1e-4);
  const auto refused = run({"convert", "--model", model(), "--out", (dir / "no").string()});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, ::testing::HasSubstr("that of the diffllama to be made"));
}

TEST_F(ProgramTest, SaysWhatIsWrongInOneSentence) {
  const struct {
    std::vector<std::string> args;
    int code;
    const char* part;
  } cases[] = {
      {{"score", "--model", (dir / "nowhere").string(), "--tokens", "1,2"},
       1,
       "nowhere is not a directory"},
      {{"score", "--model", model(), "--tokens", "1,x,2"}, 1, "must be ids like 1,2,3, got x"},
      {{"score", "--model", model(), "--tokens", "1,97"}, 1, "below the vocabulary's 97, got 97"},
      {{"score", "--model", model(), "--adapter", (dir / "foreign").string(), "--tokens", "1,2"},
       1,
       "base_weights_sha256"},
      {{"generate", "--model", model(), "--prompt", "x"}, 1, "no tokenizer.json"},
      {{"generate", "--model", model(), "--tokens", "1", "--temperature", "7"},
       1,
       "temperature must be between 0 and 2"},
      {{"generate", "--model", model()}, 2, "needs --prompt TEXT or --tokens IDS"},
      {{"score", "--model", model(), "--dtype", "f16", "--tokens", "1,2"}, 2, "--dtype"},
      {{}, 2, "subcommand"},
  };
  for (const auto& wrong : cases) {
    const auto got = run(wrong.args);
    EXPECT_EQ(got.code, wrong.code) << got.error;
    EXPECT_THAT(got.error + got.out, ::testing::HasSubstr(wrong.part));
    EXPECT_THAT(got.error, ::testing::Not(::testing::HasSubstr("terminate")));
  }
}

TEST_F(ProgramTest, HelpTeaches) {
  const auto got = run({"--help"});
  EXPECT_EQ(got.code, 0);
  EXPECT_THAT(got.out, ::testing::HasSubstr("dex-engine generate --model DIR --prompt"));
  EXPECT_THAT(got.out, ::testing::HasSubstr("dex-engine score --model DIR"));
}

}  // namespace
}  // namespace dex::serve
