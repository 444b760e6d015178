// dexctl compare: which tokens count as different, and what is asked and shown.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <random>
#include <sstream>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/token_difference.h"

namespace dex::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ids = std::vector<int32_t>;

TokenDifference difference_of(const std::vector<Ids>& texts) {
  return token_difference(texts);
}

TEST(TokenDifferenceTest, EqualTextsDifferNowhere) {
  const auto found = difference_of({{1, 2, 3}, {1, 2, 3}});
  EXPECT_EQ(found.first, -1);
  EXPECT_THAT(found.same[0], ElementsAre(true, true, true));
  EXPECT_THAT(found.same[1], ElementsAre(true, true, true));
}

TEST(TokenDifferenceTest, AnInsertedTokenMovesTheRestAndMarksNothingElse) {
  const auto found = difference_of({{1, 2, 3}, {1, 9, 2, 3}});
  EXPECT_EQ(found.first, 1);
  EXPECT_THAT(found.same[0], ElementsAre(true, true, true));
  EXPECT_THAT(found.same[1], ElementsAre(true, false, true, true));
}

TEST(TokenDifferenceTest, OfTheFirstTextOnlyWhatAllHaveIsTheSame) {
  const auto found = difference_of({{1, 2, 3}, {1, 3}, {1, 2}});
  EXPECT_THAT(found.same[0], ElementsAre(true, false, false));
  EXPECT_THAT(found.same[1], ElementsAre(true, true));
  EXPECT_THAT(found.same[2], ElementsAre(true, true));
  EXPECT_EQ(found.first, 1);
}

TEST(TokenDifferenceTest, EmptyTexts) {
  EXPECT_EQ(difference_of({{}, {}}).first, -1);
  EXPECT_EQ(difference_of({{}, {1}}).first, 0);
  EXPECT_THAT(difference_of({{}, {1}}).same[1], ElementsAre(false));
  EXPECT_TRUE(difference_of({}).same.empty());
}

// The longest common subsequence by its definition.
size_t longest_common(const Ids& a, const Ids& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() || j == b.size()) return 0;
  if (a[i] == b[j]) return 1 + longest_common(a, b, i + 1, j + 1);
  return std::max(longest_common(a, b, i + 1, j), longest_common(a, b, i, j + 1));
}

TEST(TokenDifferenceTest, WhatIsTheSameIsALongestCommonSubsequence) {
  std::mt19937 random(7);
  const auto text = [&] {
    Ids ids(random() % 9);
    for (auto& id : ids) id = static_cast<int32_t>(random() % 3);
    return ids;
  };
  for (int round = 0; round < 300; ++round) {
    const Ids a = text(), b = text();
    const auto found = difference_of({a, b});
    std::vector<Ids> kept(2);
    for (size_t i = 0; i < a.size(); ++i)
      if (found.same[0][i]) kept[0].push_back(a[i]);
    for (size_t i = 0; i < b.size(); ++i)
      if (found.same[1][i]) kept[1].push_back(b[i]);
    EXPECT_EQ(kept[0], kept[1]);
    EXPECT_EQ(kept[0].size(), longest_common(a, b));
  }
}

v1::GenerateResponse reply_of(const std::vector<std::string>& tokens) {
  v1::GenerateResponse reply;
  for (const auto& token : tokens) reply.add_logprobs()->set_token(token);
  return reply;
}

TEST(MarkedTextTest, NeighboursAreMarkedTogether) {
  EXPECT_EQ(marked_text(reply_of({"a", " b", " c", " d"}), {true, false, false, true}, "[", "]"),
            "a[ b c] d");
  EXPECT_EQ(marked_text(reply_of({"a", " b"}), {true, false}, "[", "]"), "a[ b]");
  EXPECT_EQ(marked_text(reply_of({"a"}), {true}, "[", "]"), "a");
}

// "€" in two tokens, of which the second differs: no mark may stand within a character.
TEST(MarkedTextTest, ACharacterIsNeverCut) {
  EXPECT_EQ(marked_text(reply_of({"a", "bytes:\\xe2\\x82", "bytes:\\xac", "b"}),
                        {true, true, false, true}, "[", "]"),
            "a[€]b");
}

// Answers with three words; the adapter's second is another.
class Generators final : public v1::InferenceService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        v1::GenerateResponse* reply) override {
    asked.push_back(*request);
    const bool adapted = request->model().starts_with("ft:");
    int32_t id = 0;
    for (const char* token : {"one", adapted ? " TWO" : " two", " three"}) {
      auto& entry = *reply->add_logprobs();
      entry.set_token(token);
      entry.set_token_id(adapted && id == 1 ? 100 : id);
      ++id;
    }
    reply->set_id("gen-" + request->model());
    reply->set_seed(request->has_seed() ? request->seed() : 77);
    return grpc::Status::OK;
  }
  std::vector<v1::GenerateRequest> asked;
};

class FinishedJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status GetFineTuningJob(grpc::ServerContext*, const v1::GetFineTuningJobRequest* request,
                                v1::FineTuningJob* job) override {
    job->set_id(request->id());
    if (request->id() != "ftjob-01A") return grpc::Status::OK;
    job->set_fine_tuned_model("ft:m:a:1");
    job->mutable_metrics()->set_served_step(40);
    return grpc::Status::OK;
  }
};

class CompareTest : public testing::Test {
 protected:
  CompareTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&generators_);
    builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<client::Client>(
        client::Client::Options{.server = "127.0.0.1:" + std::to_string(port)});
  }
  int run(const std::string& line, Format format = Format::kTable, Terminal terminal = {}) {
    CLI::App app;
    Action action;
    add_compare(app, action);
    app.parse(line);
    Output output(format, terminal, false, out_, err_);
    Context context{*client_, output, {}, {}};
    return action(context);
  }

  Generators generators_;
  FinishedJobs jobs_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<client::Client> client_;
  std::ostringstream out_, err_;
};

TEST_F(CompareTest, TheSameSeedForAllAndWhatDiffersMarked) {
  EXPECT_EQ(run("compare m ft:m:a:1 --prompt x --temperature 0.5 --max-tokens 3"), kDone);
  EXPECT_EQ(out_.str(), "m\none⟦ two⟧ three\n\nft:m:a:1\none⟦ TWO⟧ three\n");
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("seed 77"), HasSubstr("first difference is token 2")));
  ASSERT_EQ(generators_.asked.size(), 2u);
  EXPECT_FALSE(generators_.asked[0].has_seed()) << "drawn by the server";
  EXPECT_EQ(generators_.asked[1].seed(), 77u);
  for (const auto& request : generators_.asked) {
    EXPECT_EQ(request.prompt(), "x");
    EXPECT_EQ(request.temperature(), 0.5);
    EXPECT_TRUE(request.has_logprobs());
  }
}

TEST_F(CompareTest, OnATerminalTheMarkIsAStyle) {
  EXPECT_EQ(run("compare m ft:m:a:1 --prompt x", Format::kTable, {.color = true}), kDone);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("one\x1b[7m TWO\x1b[0m three"), Not(HasSubstr("⟦"))));
}

TEST_F(CompareTest, EqualAnswersAreSaidToBe) {
  EXPECT_EQ(run("compare m m --message hi --system short --seed 5"), kDone);
  EXPECT_THAT(err_.str(), HasSubstr("seed 5, all the same"));
  ASSERT_EQ(generators_.asked[1].chat().messages_size(), 2);
  EXPECT_EQ(generators_.asked[1].chat().messages(0).role(), "system");
  EXPECT_EQ(generators_.asked[1].chat().messages(1).content(), "hi");
}

TEST_F(CompareTest, AStrengthBelongsToOneOfThem) {
  EXPECT_EQ(run("compare m ft:m:a:1@0.25 --prompt x", Format::kId), kDone);
  EXPECT_EQ(out_.str(), "gen-m\ngen-ft:m:a:1\n");
  EXPECT_FALSE(generators_.asked[0].has_dex_lambda_scale());
  EXPECT_EQ(generators_.asked[1].dex_lambda_scale(), 0.25);
  EXPECT_EQ(run("compare m ft:m:a:1@2 --prompt x"), kUserFault);
  EXPECT_THAT(err_.str(), HasSubstr("ft:m:a:1@2"));
  EXPECT_EQ(generators_.asked.size(), 2u) << "nothing is asked before all is understood";
}

TEST_F(CompareTest, ACheckpointIsWhatItsJobHasPublished) {
  EXPECT_EQ(run("compare m ftckpt-01A-40 --prompt x"), kDone);
  EXPECT_EQ(generators_.asked[1].model(), "ft:m:a:1");
  EXPECT_THAT(out_.str(), HasSubstr("\nftckpt-01A-40\n"));
  EXPECT_EQ(run("compare m ftckpt-01A-30 --prompt x"), kUserFault);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("is of step 30"), HasSubstr("published step 40"),
                                HasSubstr("compare ft:m:a:1")));
  EXPECT_EQ(run("compare m ftckpt-01B-30 --prompt x"), kUserFault);
  EXPECT_THAT(err_.str(), HasSubstr("job ftjob-01B has published nothing"));
}

}  // namespace
}  // namespace dex::cli
