#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <fstream>

#include "client/cpp/client.h"
#include "services/rpc/status.h"

namespace dex::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A job with five events. The first connection breaks after two of them, the second after one more
// without any word, the third goes to the end.
class FlakyJobs : public v1::FineTuningService::Service {
 public:
  grpc::Status WatchFineTuningJob(
      grpc::ServerContext*, const v1::WatchFineTuningJobRequest* request,
      grpc::ServerWriter<v1::WatchFineTuningJobResponse>* writer) override {
    if (request->id() == "ftjob-none") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    if (request->id() == "ftjob-quota") return exhausted("QUOTA_EXCEEDED");
    if (request->id() == "ftjob-crowd" && turned_away < 2) {
      ++turned_away;
      return exhausted("RATE_LIMITED");
    }
    cursors.push_back(request->after_sequence());
    const int connection = ++connections;
    v1::WatchFineTuningJobResponse message;
    message.mutable_snapshot()->set_state(v1::JOB_STATE_RUNNING);
    writer->Write(message);
    const int64_t last = connection == 1 ? 2 : connection == 2 ? 3 : 5;
    for (int64_t sequence = request->after_sequence() + 1; sequence <= last; ++sequence) {
      message.mutable_event()->set_sequence(sequence);
      writer->Write(message);
    }
    if (connection == 1) return {grpc::StatusCode::UNAVAILABLE, "draining"};
    if (connection == 2) return grpc::Status::OK;  // ended without a terminal state
    message.mutable_snapshot()->set_state(v1::JOB_STATE_SUCCEEDED);
    writer->Write(message);
    return grpc::Status::OK;
  }

  static grpc::Status exhausted(const char* reason) {
    return rpc::to_grpc({base::Code::kResourceExhausted, reason, "too much of it"}, "request-1");
  }

  std::atomic<int> connections{0}, turned_away{0};
  std::vector<int64_t> cursors;
};

// Answers an upload with how many bytes came, or refuses in the middle.
class Files : public v1::FileService::Service {
 public:
  grpc::Status UploadFile(grpc::ServerContext*, grpc::ServerReader<v1::UploadFileRequest>* reader,
                          v1::File* reply) override {
    v1::UploadFileRequest part;
    int64_t bytes = 0;
    while (reader->Read(&part)) {
      if (part.has_header()) reply->set_filename(part.header().filename());
      bytes += static_cast<int64_t>(part.chunk().size());
      if (refuse) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "100 files are allowed"};
    }
    reply->set_bytes(bytes);
    reply->set_state(v1::FILE_STATE_READY);
    return grpc::Status::OK;
  }
  bool refuse = false;
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&files_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  FlakyJobs jobs_;
  Files files_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(ClientTest, AWatchSurvivesBrokenConnectionsWithoutARepeat) {
  Client client({.server = address_});
  std::vector<int64_t> sequences;
  const auto status =
      client.watch_job("ftjob-1", 0, [&](const v1::WatchFineTuningJobResponse& message) {
        if (message.has_event()) sequences.push_back(message.event().sequence());
        return true;
      });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(jobs_.cursors, ElementsAre(0, 2, 3));
}

TEST_F(ClientTest, AWatchEndsWhenTheCallbackHasEnoughOrTheJobIsUnknown) {
  Client client({.server = address_});
  int seen = 0;
  EXPECT_TRUE(client.watch_job("ftjob-1", 0, [&](const auto&) { return ++seen < 2; }).ok());
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(client.watch_job("ftjob-none", 0, [](const auto&) { return true; }).code(),
            base::Code::kNotFound);
}

TEST_F(ClientTest, AWatchComesBackToAServerThatWasTooBusyForIt) {
  Client client({.server = address_});
  std::vector<int64_t> sequences;
  const auto status =
      client.watch_job("ftjob-crowd", 0, [&](const v1::WatchFineTuningJobResponse& message) {
        if (message.has_event()) sequences.push_back(message.event().sequence());
        return true;
      });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(jobs_.turned_away, 2);
  // What does not pass by itself is final.
  EXPECT_EQ(client.watch_job("ftjob-quota", 0, [](const auto&) { return true; }).reason(),
            "QUOTA_EXCEEDED");
}

TEST_F(ClientTest, AStopEndsTheWatch) {
  std::stop_source stop;
  Client client({.server = address_, .stop = stop.get_token()});
  const auto status = client.watch_job("ftjob-1", 0, [&](const auto&) {
    stop.request_stop();
    return true;
  });
  EXPECT_EQ(status.code(), base::Code::kCancelled);
}

TEST_F(ClientTest, UploadsInPiecesAndReportsARefusalFromTheMiddle) {
  const auto path =
      std::filesystem::temp_directory_path() / ("dex-upload-" + std::to_string(getpid()));
  std::ofstream(path) << std::string(3'000'000, 'x');
  Client client({.server = address_});
  int64_t last = 0;
  const auto file = client.upload_file(path, {}, [&](int64_t sent, int64_t) { last = sent; });
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->bytes(), 3'000'000);
  EXPECT_EQ(last, 3'000'000);
  EXPECT_EQ(file->filename(), path.filename());

  files_.refuse = true;
  EXPECT_EQ(client.upload_file(path, {}).status().code(), base::Code::kResourceExhausted);
  std::filesystem::remove(path);
  EXPECT_EQ(client.upload_file(path, {}).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST(ClientWithoutServerTest, SaysWhereItLooked) {
  Client client({.server = "127.0.0.1:1", .timeout = std::chrono::milliseconds(300)});
  const auto status = client.list_models().status();
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(status.message(), HasSubstr("DEX_SERVER"));
  // The long time of a generation is for generating, not for finding nobody.
  EXPECT_EQ(client.generate({}).status().code(), base::Code::kUnavailable);
}

}  // namespace
}  // namespace dex::client
