#include "services/rpc/upload.h"

#include <gmock/gmock.h>

#include "tests/unit/services/rpc/file_server.h"

namespace dex::rpc {
namespace {

using std::chrono::milliseconds;

v1::UploadFileRequest upload_chunk(const std::string& bytes) {
  v1::UploadFileRequest made;
  made.set_chunk(bytes);
  return made;
}

// Reads to the end and answers with the number of bytes.
base::Result<v1::File> count(Upload<v1::UploadFileRequest>& reader) {
  v1::File file;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto message, reader.next());
    if (!message) return file;
    file.set_bytes(file.bytes() + static_cast<int64_t>(message->chunk().size()));
  }
}

class UploadTest : public FileServer {
 protected:
  void SetUp() override { limit(context_); }
  void open() { writer_ = stub_->UploadFile(&context_, &reply_); }
  base::Status finish() { return from_grpc(writer_->Finish()); }

  grpc::ClientContext context_;
  v1::File reply_;
  std::unique_ptr<grpc::ClientWriter<v1::UploadFileRequest>> writer_;
};

TEST_F(UploadTest, EveryByteArrives) {
  start();
  files_->upload = [](Call&, auto& reader) { return count(reader); };
  open();
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(writer_->Write(upload_chunk(std::string(1 << 20, 'a'))));
  writer_->WritesDone();
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(reply_.bytes(), 64 << 20);
}

TEST_F(UploadTest, ABrokenUploadIsNeverAWholeOne) {
  start();
  Event first, over;
  base::Code code = base::Code::kOk;
  files_->upload = [&](Call&, auto& reader) -> base::Result<v1::File> {
    EXPECT_TRUE(reader.next().ok());
    first.set();
    code = reader.next().status().code();
    over.set();
    return v1::File();
  };
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("half")));
  ASSERT_TRUE(first.wait());
  context_.TryCancel();
  ASSERT_TRUE(over.wait());
  EXPECT_EQ(code, base::Code::kCancelled);
  EXPECT_FALSE(finish().ok());
}

TEST_F(UploadTest, AnIdleUploadEnds) {
  Room::Options options;
  options.idle_upload = milliseconds(50);
  start(options);
  files_->upload = [](Call&, auto& reader) { return count(reader); };
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("and then nothing")));
  EXPECT_EQ(finish().reason(), "DEADLINE");
}

// It has its thread for as long as its client takes.
TEST_F(UploadTest, ASlowOneKeepsNoWatchFromStarting) {
  Room::Options options;
  options.streams.threads = 1;
  options.transfers.threads = 1;
  start(options);
  Event begun;
  files_->upload = [&](Call&, auto& reader) {
    EXPECT_TRUE(reader.next().ok());
    begun.set();
    return count(reader);
  };
  files_->download = [](Files::Chunks chunks) {
    v1::DownloadFileResponse news;
    news.set_chunk("news");
    EXPECT_TRUE(chunks->push(news));
    chunks->finish({});
  };
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("and then nothing")));
  ASSERT_TRUE(begun.wait());
  grpc::ClientContext watch;
  limit(watch);
  const auto reader = stub_->DownloadFile(&watch, v1::DownloadFileRequest());
  v1::DownloadFileResponse message;
  EXPECT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.chunk(), "news");
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());
  writer_->WritesDone();
  EXPECT_TRUE(finish().ok());
}

TEST_F(UploadTest, AnAnswerMayComeBeforeTheEnd) {
  start();
  files_->upload = [](Call&, auto& reader) -> base::Result<v1::File> {
    EXPECT_TRUE(reader.next().ok());
    return base::invalid_field("filename", "is too long");
  };
  open();
  while (writer_->Write(upload_chunk(std::string(1 << 20, 'a')))) {
  }
  EXPECT_EQ(finish().reason(), "INVALID_FIELD");
}

TEST_F(UploadTest, UnknownFieldsInAChunkAreRefused) {
  start();
  files_->upload = [](Call&, auto& reader) { return count(reader); };
  open();
  auto strange = upload_chunk("x");
  strange.GetReflection()->MutableUnknownFields(&strange)->AddVarint(50, 1);
  writer_->Write(strange);
  EXPECT_EQ(finish().reason(), "UNKNOWN_FIELD");
}

TEST_F(UploadTest, DrainEndsUploads) {
  start();
  Event first;
  files_->upload = [&](Call&, auto& reader) {
    EXPECT_TRUE(reader.next().ok());
    first.set();
    return count(reader);
  };
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("x")));
  ASSERT_TRUE(first.wait());
  room_->drain();
  EXPECT_EQ(finish().reason(), "SERVER_DRAINING");
}

TEST_F(UploadTest, AChunkAboveTheMessageLimitIsRefused) {
  start();
  files_->upload = [](Call&, auto& reader) { return count(reader); };
  open();
  writer_->Write(upload_chunk(std::string(5 << 20, 'a')));
  writer_->WritesDone();
  EXPECT_THAT(finish().code(),
              ::testing::AnyOf(base::Code::kResourceExhausted, base::Code::kCancelled));
}

// Answers whose uploads end long before them.
class PendingUploadTest : public UploadTest {
 protected:
  using PendingFile = PendingUpload<v1::UploadFileRequest, v1::File>;

  // Reads one chunk, keeps the call and says so.
  void keep_one() {
    files_->upload_later = [this](std::shared_ptr<PendingFile> pending) {
      EXPECT_TRUE(pending->next().ok());
      kept_ = std::move(pending);
      kept_it_.set();
    };
  }

  std::shared_ptr<PendingFile> kept_;
  Event kept_it_;
};

TEST_F(PendingUploadTest, TheAnswerComesFromAnotherThreadLater) {
  start();
  keep_one();
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("x")));
  writer_->WritesDone();
  ASSERT_TRUE(kept_it_.wait());
  EXPECT_TRUE(kept_->alive());
  v1::File file;
  file.set_bytes(7);
  kept_->answer(file);
  kept_->answer(base::internal("a second one"));
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(reply_.bytes(), 7);
}

TEST_F(PendingUploadTest, OneThatIsLetGoEndsTheCall) {
  start();
  keep_one();
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("x")));
  writer_->WritesDone();
  ASSERT_TRUE(kept_it_.wait());
  kept_.reset();
  EXPECT_EQ(finish().code(), base::Code::kInternal);
}

TEST_F(PendingUploadTest, AfterADrainAnyAnswerSaysSo) {
  start();
  keep_one();
  open();
  ASSERT_TRUE(writer_->Write(upload_chunk("x")));
  writer_->WritesDone();
  ASSERT_TRUE(kept_it_.wait());
  room_->drain();
  EXPECT_FALSE(kept_->alive());
  kept_->answer(v1::File());
  EXPECT_EQ(finish().reason(), "SERVER_DRAINING");
}

}  // namespace
}  // namespace dex::rpc
