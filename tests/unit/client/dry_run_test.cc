// --dry-run changes nothing on the server, not even by uploading: a server that counts.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "services/base/sha256.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kText = "The cat sat on the mat .\n";

class CountingFiles final : public v1::FileService::Service {
 public:
  grpc::Status UploadFile(grpc::ServerContext*, grpc::ServerReader<v1::UploadFileRequest>* reader,
                          v1::File* reply) override {
    ++uploads;
    v1::UploadFileRequest part;
    while (reader->Read(&part)) {
    }
    reply->set_id("file-new");
    reply->set_state(v1::FILE_STATE_READY);
    return grpc::Status::OK;
  }
  grpc::Status ListFiles(grpc::ServerContext*, const v1::ListFilesRequest*,
                         v1::ListFilesResponse* reply) override {
    *reply = known;
    return grpc::Status::OK;
  }
  void know(const std::string& id, v1::FilePurpose purpose) {
    auto& file = *known.add_files();
    file.set_id(id);
    file.set_sha256(base::sha256_hex(kText));
    file.set_purpose(purpose);
    file.set_state(v1::FILE_STATE_READY);
  }

  int uploads = 0;
  v1::ListFilesResponse known;
};

class CountingEvaluations final : public v1::EvaluationService::Service {
 public:
  grpc::Status CreateEvaluation(grpc::ServerContext*, const v1::CreateEvaluationRequest* request,
                                v1::Evaluation* reply) override {
    requests.push_back(*request);
    *reply->mutable_spec() = request->spec();
    return grpc::Status::OK;
  }
  std::vector<v1::CreateEvaluationRequest> requests;
};

class CountingJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status EstimateFineTuningJob(grpc::ServerContext*,
                                     const v1::EstimateFineTuningJobRequest* request,
                                     v1::Estimate* reply) override {
    estimated.push_back(request->spec().training_file());
    reply->set_allowed_to_proceed(true);
    return grpc::Status::OK;
  }
  std::vector<std::string> estimated;
};

class DryRunTest : public testing::Test {
 protected:
  DryRunTest() : path_(directory_ / "text") {
    std::ofstream(path_) << kText;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&files_);
    builder.RegisterService(&evaluations_);
    builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  // What main does with a command line, without its global options.
  int run(const std::string& command) {
    CLI::App app;
    Action action;
    add_evaluations(app, action);
    add_jobs(app, action);
    app.parse(command);
    std::ostringstream out, err;
    Output output(Format::kTable, Terminal{}, false, out, err);
    client::Client client({.server = address_});
    Context context{client, output, {}};
    const int code = action(context);
    said_ = err.str();
    return code;
  }
  [[nodiscard]] std::string evaluate() const {
    return "evaluations create --model small --task perplexity --file " + path_.string();
  }
  [[nodiscard]] std::string train() const {
    return "jobs create --model small --training-file " + path_.string();
  }

  support::TemporaryDirectory directory_;
  const std::filesystem::path path_;
  CountingFiles files_;
  CountingEvaluations evaluations_;
  CountingJobs jobs_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::string said_;  // on stderr
};

TEST_F(DryRunTest, AFileThatWouldHaveToBeUploadedIsRefusedWithTheCommand) {
  EXPECT_EQ(run(evaluate() + " --dry-run"), kUserFault);
  EXPECT_THAT(said_, HasSubstr("dexctl files upload " + path_.string() + " --purpose evals"));
  EXPECT_EQ(run(train() + " --dry-run"), kUserFault);
  EXPECT_THAT(said_, HasSubstr("dexctl files upload " + path_.string()));
  EXPECT_EQ(files_.uploads, 0);
  EXPECT_THAT(evaluations_.requests, IsEmpty());
  EXPECT_THAT(jobs_.estimated, IsEmpty());
}

TEST_F(DryRunTest, AFileThatIsThereIsNamedByItsId) {
  files_.know("file-1", v1::FILE_PURPOSE_EVALS);
  files_.know("file-2", v1::FILE_PURPOSE_FINE_TUNE);
  EXPECT_EQ(run(evaluate() + " --dry-run"), kDone) << said_;
  ASSERT_EQ(evaluations_.requests.size(), 1U);
  EXPECT_TRUE(evaluations_.requests[0].validate_only());
  EXPECT_EQ(evaluations_.requests[0].spec().tasks(0).perplexity().file(), "file-1");
  EXPECT_EQ(run(train() + " --dry-run"), kDone) << said_;
  EXPECT_THAT(jobs_.estimated, testing::ElementsAre("file-2"));
  EXPECT_EQ(files_.uploads, 0);
}

TEST_F(DryRunTest, WithoutItAPathIsUploaded) {
  EXPECT_EQ(run(evaluate()), kDone) << said_;
  EXPECT_EQ(files_.uploads, 1);
  ASSERT_EQ(evaluations_.requests.size(), 1U);
  EXPECT_FALSE(evaluations_.requests[0].validate_only());
  EXPECT_EQ(evaluations_.requests[0].spec().tasks(0).perplexity().file(), "file-new");
}

}  // namespace
}  // namespace dex::cli
