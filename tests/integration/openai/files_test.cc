#include <mutex>

#include "tests/integration/openai/openai_fixture.h"

namespace dex::gateway {
namespace {

constexpr const char* kForm = "multipart/form-data; boundary=b0";

struct FormPart {
  std::string name, filename, value;
};

std::string form(const std::vector<FormPart>& parts) {
  std::string body;
  for (const auto& part : parts) {
    body += "--b0\r\nContent-Disposition: form-data; name=\"" + part.name + "\"";
    if (!part.filename.empty()) body += "; filename=\"" + part.filename + "\"";
    body += "\r\n\r\n" + part.value + "\r\n";
  }
  return body + "--b0--\r\n";
}

class OpenAiFilesTest : public OpenAiTest {
 protected:
  // What the fake scheduler was sent.
  struct Upload {
    v1::UploadFileRequest::Header header;
    std::string bytes;
  };

  void SetUp() override {
    OpenAiTest::SetUp();
    scheduler_->files.upload = [this](rpc::Call&, rpc::Upload<v1::UploadFileRequest>& upload) {
      return take(upload);
    };
  }

  base::Result<v1::File> take(rpc::Upload<v1::UploadFileRequest>& upload) {
    Upload got;
    while (true) {
      DEX_ASSIGN_OR_RETURN(const auto message, upload.next());
      if (!message) break;
      if (message->has_header()) got.header = message->header();
      if (got.header.filename() == "refused.jsonl")
        return base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED", "too many files");
      got.bytes += message->chunk();
    }
    v1::File file;
    file.set_id("file-1");
    file.set_filename(got.header.filename());
    file.set_bytes(static_cast<int64_t>(got.bytes.size()));
    file.set_state(v1::FILE_STATE_READY);
    const std::lock_guard lock(mutex_);
    uploads_.push_back(std::move(got));
    return file;
  }

  std::mutex mutex_;
  std::vector<Upload> uploads_;  // guarded by mutex_
};

TEST_F(OpenAiFilesTest, PartsMayComeInAnyOrder) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += "line " + std::to_string(i) + "\r\n--b\n";
  const FormPart purpose{"purpose", "", "fine-tune"}, file{"file", "train.jsonl", bytes};
  for (const auto& parts : {std::vector{purpose, file}, std::vector{file, purpose}}) {
    const auto reply = send("POST", "/v1/files", form(parts), kForm);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json().at("status"), "processed");
    EXPECT_EQ(reply.json().at("bytes"), bytes.size());
  }
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(uploads_.size(), 2U);
  for (const auto& upload : uploads_) {
    EXPECT_EQ(upload.header.filename(), "train.jsonl");
    EXPECT_EQ(upload.header.purpose(), v1::FILE_PURPOSE_FINE_TUNE);
    EXPECT_TRUE(upload.bytes == bytes) << "not the bytes that were sent";
  }
  EXPECT_NE(uploads_[0].header.request_id(), uploads_[1].header.request_id());
}

TEST_F(OpenAiFilesTest, ARepeatThatSaysSoHasTheFirstOnesRequestId) {
  const auto body = form({{"purpose", "", "evals"}, {"file", "a.jsonl", "{}\n"}});
  for (const char* count : {"0", "1", "0"}) {
    ASSERT_EQ(send("POST", "/v1/files", body, kForm, {{"x-stainless-retry-count", count}}).status,
              200);
  }
  ASSERT_EQ(send("POST", "/v1/files", body, kForm, {{"Idempotency-Key", "mine"}}).status, 200);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(uploads_[0].header.request_id(), uploads_[1].header.request_id());
  EXPECT_NE(uploads_[0].header.request_id(), uploads_[2].header.request_id());
  EXPECT_EQ(uploads_[3].header.request_id(), "mine");
}

TEST_F(OpenAiFilesTest, FormsThatAreNoneAreRefusedByName) {
  const FormPart purpose{"purpose", "", "fine-tune"}, file{"file", "a", "x"};
  const auto refusal = [&](const std::vector<FormPart>& parts) {
    const auto reply = send("POST", "/v1/files", form(parts), kForm);
    return std::to_string(reply.status) + " " + reply.error();
  };
  EXPECT_EQ(refusal({file}), "400 missing_field purpose");
  EXPECT_EQ(refusal({purpose}), "400 missing_field file");
  EXPECT_EQ(refusal({purpose, file, file}), "400 invalid_field file");
  EXPECT_EQ(refusal({{"purpose", "", "batch"}, file}), "400 unsupported_parameter purpose");
  EXPECT_EQ(refusal({purpose, {"porpoise", "", "x"}, file}), "400 unknown_field porpoise");
  EXPECT_EQ(refusal({purpose, {"expires_after[anchor]", "", "created_at"}, file}),
            "400 unsupported_parameter expires_after[anchor]");
  EXPECT_EQ(send("POST", "/v1/files", "{}").status, 400);
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(uploads_.empty()) << "nothing of these was stored";
}

TEST_F(OpenAiFilesTest, TheSchedulersRefusalIsTheAnswer) {
  const auto reply = send(
      "POST", "/v1/files",
      form({{"purpose", "", "fine-tune"}, {"file", "refused.jsonl", std::string(200 << 10, 'x')}}),
      kForm);
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.error(), "insufficient_quota");
}

TEST_F(OpenAiFilesTest, ContentComesAsItIsAndHalfAFileIsNoWholeOne) {
  scheduler_->files.download = [](const rpc::Files::Chunks& chunks) {
    for (const char* text : {"one ", "two"}) {
      v1::DownloadFileResponse piece;
      piece.set_chunk(text);
      chunks->push(std::move(piece));
    }
    chunks->finish({});
  };
  const auto whole = send("GET", "/v1/files/file-1/content");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body, "one two");
  EXPECT_TRUE(whole.whole);
  scheduler_->files.download = [](const rpc::Files::Chunks& chunks) {
    v1::DownloadFileResponse piece;
    piece.set_chunk("half");
    chunks->push(std::move(piece));
    chunks->finish(base::Status(base::Code::kDataLoss, "ARTIFACT_CORRUPT", "cut short"));
  };
  const auto cut = send("GET", "/v1/files/file-1/content");
  EXPECT_FALSE(cut.status == 200 && cut.whole) << "the client must see that it is not all";
  scheduler_->files.download = [](const rpc::Files::Chunks& chunks) {
    chunks->finish(base::not_found("RESOURCE_NOT_FOUND", "no such file"));
  };
  EXPECT_EQ(send("GET", "/v1/files/file-2/content").status, 404);
}

}  // namespace
}  // namespace dex::gateway
