// dexctl checkpoints list, and ids of texts in the library: what the server is asked for, what
// people read.
#include <gmock/gmock.h>

#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"

namespace dex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SavedJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status ListFineTuningCheckpoints(grpc::ServerContext*,
                                         const v1::ListFineTuningCheckpointsRequest* request,
                                         v1::ListFineTuningCheckpointsResponse* reply) override {
    asked = *request;
    auto& last = *reply->add_checkpoints();
    last.set_id("ftckpt-1-40");
    last.set_step(40);
    last.set_bytes(3 << 20);
    last.set_train_loss(2.5);
    last.set_is_last(true);
    auto& best = *reply->add_checkpoints();
    best.set_id("ftckpt-1-30");
    best.set_step(30);
    best.set_valid_loss(1.25);
    best.set_is_best(true);
    best.set_lambda_mean(0.375);
    for (const float ratio : {0.01F, NAN, 0.03F}) best.add_branch_ratio(ratio);
    best.set_by_layer_step(30);
    reply->set_has_more(true);
    return grpc::Status::OK;
  }
  v1::ListFineTuningCheckpointsRequest asked;
};

class Tokenizers final : public v1::InferenceService::Service {
 public:
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* reply) override {
    for (const char letter : request->text()) reply->add_ids(letter);
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* reply) override {
    for (const int32_t id : request->ids()) *reply->mutable_text() += static_cast<char>(id);
    return grpc::Status::OK;
  }
  grpc::Status GetTokenizerInfo(grpc::ServerContext*, const v1::GetTokenizerInfoRequest* request,
                                v1::TokenizerInfo* reply) override {
    reply->set_eos_token("end of " + request->model());
    return grpc::Status::OK;
  }
};

class CheckpointsTest : public testing::Test {
 protected:
  CheckpointsTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&tokenizers_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<client::Client>(
        client::Client::Options{.server = "127.0.0.1:" + std::to_string(port)});
  }
  int run(const std::string& line, Format format = Format::kTable) {
    CLI::App app;
    Action action;
    add_checkpoints(app, action);
    app.parse(line);
    Output output(format, Terminal{}, false, out_, err_);
    Context context{*client_, output, {}};
    return action(context);
  }

  SavedJobs jobs_;
  Tokenizers tokenizers_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<client::Client> client_;
  std::ostringstream out_, err_;
};

TEST_F(CheckpointsTest, AListHasLossesAndSaysWhichIsBestAndHowToGoOn) {
  EXPECT_EQ(run("checkpoints list ftjob-1 --limit 2 --after ftckpt-1-50"), kDone);
  EXPECT_EQ(jobs_.asked.job(), "ftjob-1");
  EXPECT_EQ(jobs_.asked.page_size(), 2);
  EXPECT_EQ(jobs_.asked.after(), "ftckpt-1-50");
  EXPECT_THAT(out_.str(), HasSubstr("ftckpt-1-40  40    2.5000"));
  EXPECT_THAT(out_.str(), HasSubstr("last"));
  EXPECT_THAT(out_.str(), HasSubstr("1.2500"));
  EXPECT_THAT(out_.str(), HasSubstr("best"));
  EXPECT_THAT(err_.str(), HasSubstr("dexctl checkpoints list ftjob-1 --after ftckpt-1-30"));
}

// Layers without a selected head count for nothing; a job without a branch shows neither.
TEST_F(CheckpointsTest, AListShowsLambdaAndTheBranchsSize) {
  EXPECT_EQ(run("checkpoints list ftjob-1"), kDone);
  EXPECT_THAT(out_.str(), testing::ContainsRegex("1\\.2500 +0\\.3750 +0\\.0200 "));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("ftckpt-1-40 +40 +2\\.5000 +3\\.1 MB +last"));
}

TEST_F(CheckpointsTest, ScriptsGetIds) {
  EXPECT_EQ(run("checkpoints list ftjob-1", Format::kId), kDone);
  EXPECT_EQ(out_.str(), "ftckpt-1-40\nftckpt-1-30\n");
  EXPECT_EQ(jobs_.asked.page_size(), 20);
}

TEST_F(CheckpointsTest, TextsBecomeIdsAndTextAgain) {
  v1::TokenizeRequest text;
  text.set_text("ab");
  const auto ids = client_->tokenize(text);
  ASSERT_TRUE(ids.ok()) << ids.status().to_string();
  EXPECT_THAT(ids->ids(), ElementsAre('a', 'b'));
  v1::DetokenizeRequest back;
  *back.mutable_ids() = ids->ids();
  const auto again = client_->detokenize(back);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->text(), "ab");
  v1::GetTokenizerInfoRequest of;
  of.set_model("m");
  const auto info = client_->tokenizer_info(of);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(info->eos_token(), "end of m");
}

}  // namespace
}  // namespace dex::cli
