// Uploads: verdicts, hashes, idempotency, downloads, deletion.
#include <fstream>
#include <thread>

#include "scheduler/server/data_layout.h"
#include "services/base/sha256.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;

class FileTest : public SchedulerTest {
 protected:
  static std::string good(int rows = 20) {
    std::string bytes;
    for (int i = 0; i < rows; ++i) bytes += row(i);
    return bytes;
  }
  v1::File invalid(const std::string& bytes, const std::string& code) {
    const auto file = upload(bytes);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    if (!file.ok()) return {};
    EXPECT_EQ(file->state(), v1::FILE_STATE_INVALID) << code;
    EXPECT_TRUE(file->finding_counts().contains(code)) << code << " in " << file->DebugString();
    return *file;
  }
  // Files below a folder of the data directory.
  int count(const std::string& folder) {
    int n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory_ / "data" / folder)) {
      n += entry.is_regular_file() ? 1 : 0;
    }
    return n;
  }
  base::Result<v1::DeleteFileResponse> remove(const std::string& id) {
    v1::DeleteFileRequest request;
    request.set_id(id);
    return call(*files_, &FileStub::DeleteFile, request);
  }
};

TEST_F(FileTest, GoodFileIsReadyWithItsFigures) {
  v1::UploadFileRequest::Header header;
  const std::string bytes = good(30);
  header.set_size_bytes(static_cast<int64_t>(bytes.size()));
  header.set_sha256(base::sha256_hex(bytes));
  const auto file = upload(bytes, header);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->state(), v1::FILE_STATE_READY);
  EXPECT_EQ(file->format(), v1::FILE_FORMAT_PROMPT_COMPLETION);
  EXPECT_EQ(file->statistics().rows_good(), 30);
  EXPECT_GT(file->statistics().tokens_guess(), 0);
  EXPECT_EQ(file->bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(file->sha256(), base::sha256_hex(bytes));
  EXPECT_EQ(download_file(file->id()), bytes);
  EXPECT_EQ(count("files/upload"), 0);
}

TEST_F(FileTest, BadFilesSayWhatIsWrongAndWhere) {
  invalid("", "empty_file");
  invalid("\xff\xfe{\0\"\0", "encoding_utf16");
  invalid("{\"text\": \"\xff\xfe\"}\n" + good(), "invalid_utf8");
  invalid(good() + "{\"prompt\": 5, \"completion\": \"x\"}\n", "wrong_type");
  const auto file = invalid("not JSON at all\n" + good(), "invalid_json");
  ASSERT_GE(file.findings_size(), 1);
  EXPECT_EQ(file.findings(0).line(), 1);
  v1::ListFindingsRequest request;
  request.set_id(file.id());
  request.add_codes("invalid_json");
  const auto findings = call(*files_, &FileStub::ListFindings, request);
  ASSERT_TRUE(findings.ok()) << findings.status().to_string();
  EXPECT_EQ(findings->total(), 1);
  EXPECT_EQ(findings->findings(0).code(), "invalid_json");
}

TEST_F(FileTest, LineOfTenMegabytesIsAFindingNotAFailure) {
  const auto file =
      invalid("{\"text\": \"" + std::string(10 << 20, 'x') + "\"}\n" + good(), "line_too_long");
  EXPECT_EQ(file.findings(0).line(), 1);
}

TEST_F(FileTest, BrokenPromisesAreRefusedAndLeaveNothing) {
  v1::UploadFileRequest::Header header;
  header.set_sha256(std::string(64, '0'));
  EXPECT_EQ(upload(good(), header).status().reason(), "CHECKSUM_MISMATCH");
  header.clear_sha256();
  header.set_size_bytes(1);
  EXPECT_EQ(upload(good(), header).status().reason(), "CHECKSUM_MISMATCH");
  header.clear_size_bytes();
  header.set_filename("../evil");
  EXPECT_EQ(upload(good(), header).status().violations().at(0).field, "filename");
  header.set_filename("x");
  header.set_skip_budget_ratio(0.5);
  EXPECT_EQ(upload(good(), header).status().reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_EQ(count("files"), 0);
}

TEST_F(FileTest, SkipBudgetToleratesBadRows) {
  v1::UploadFileRequest::Header header;
  header.set_skip_budget_ratio(0.1);
  const auto file = upload(good(50) + "broken\n", header);
  EXPECT_EQ(file->state(), v1::FILE_STATE_READY);
  EXPECT_EQ(file->statistics().rows_skipped(), 1);
}

TEST_F(FileTest, RepeatedUploadGivesTheFirstFile) {
  v1::UploadFileRequest::Header header;
  header.set_request_id("upload-1");
  const auto first = upload(good(), header);
  std::string replayed;
  const auto second = upload(good(), header, &replayed);
  EXPECT_EQ(second->id(), first->id());
  EXPECT_EQ(replayed, "true");
  EXPECT_EQ(upload(good(21), header).status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(count("files/sha256"), 1);
}

TEST_F(FileTest, EqualBytesAreStoredOnceAndGoWithTheLastRecord) {
  const auto first = upload(good());
  const auto second = upload(good());
  EXPECT_NE(first->id(), second->id());
  EXPECT_EQ(count("files/sha256"), 1);
  ASSERT_TRUE(remove(first->id()).ok());
  EXPECT_EQ(download_file(second->id()), good());
  ASSERT_TRUE(remove(second->id()).ok());
  EXPECT_EQ(count("files"), 0);
  EXPECT_EQ(remove(second->id()).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(FileTest, UploadsAndDeletionsOfEqualBytesNeverLoseThem) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 15; ++i) {
        const auto file = upload(good());
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        EXPECT_EQ(download_file(file->id()).size(), good().size());
        EXPECT_TRUE(remove(file->id()).ok());
      }
    });
  }
  threads.clear();
  EXPECT_EQ(count("files"), 0);
}

// A delete of equal bytes, decided on before this file was there, has them until it asks again.
TEST_F(FileTest, BytesThatADeleteHoldsForAMomentCanBeDownloaded) {
  const auto file = upload(good());
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const fs::path place = directory_ / "data" / DataLayout::blob(file->sha256());
  const fs::path aside = directory_ / "data/files/upload" / (file->sha256() + ".1.dropped");
  fs::rename(place, aside);
  EXPECT_EQ(download_file(file->id()), good());
  // On a busy machine the janitor's first look may come so late that it has put them back.
  std::error_code put_back;
  fs::rename(aside, place, put_back);
  EXPECT_EQ(download_file(file->id()), good());
}

TEST_F(FileTest, FileOfALiveJobStays) {
  const auto job = create_good();
  EXPECT_EQ(remove(job.training_file()).status().reason(), "FILE_IN_USE");
  v1::CancelFineTuningJobRequest cancel;
  cancel.set_id(job.id());
  ASSERT_TRUE(call(*jobs_, &v1::FineTuningService::Stub::CancelFineTuningJob, cancel).ok());
  EXPECT_TRUE(remove(job.training_file()).ok());
}

TEST_F(FileTest, BrokenOffUploadLeavesNothing) {
  grpc::ClientContext context;
  v1::File file;
  const auto writer = files_->UploadFile(&context, &file);
  v1::UploadFileRequest request;
  request.mutable_header()->set_filename("x.jsonl");
  ASSERT_TRUE(writer->Write(request));
  request.set_chunk(good());
  ASSERT_TRUE(writer->Write(request));
  context.TryCancel();
  EXPECT_FALSE(writer->Finish().ok());
  scheduler_->stop();  // waits for the handler
  EXPECT_EQ(count("files"), 0);
}

TEST_F(FileTest, ListsAreNewestFirstAndFiltered) {
  const auto a = upload(good(20));
  const auto b = upload("bad\n");
  const auto c = upload(good(22));
  v1::ListFilesRequest request;
  const auto all = call(*files_, &FileStub::ListFiles, request);
  ASSERT_EQ(all->files_size(), 3);
  EXPECT_EQ(all->files(0).id(), c->id());
  request.set_state(v1::FILE_STATE_INVALID);
  const auto bad = call(*files_, &FileStub::ListFiles, request);
  ASSERT_EQ(bad->files_size(), 1);
  EXPECT_EQ(bad->files(0).id(), b->id());
}

}  // namespace
}  // namespace dex::server
