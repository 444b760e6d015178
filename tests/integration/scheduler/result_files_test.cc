// A job's curves as files: there once it has ended, gone with it (api.md §3, result_files).
#include <sstream>

#include "services/base/sha256.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;

class ResultFileTest : public SchedulerTest {
 protected:
  static v1::FineTuningEvent trained(uint32_t step, double loss) {
    v1::FineTuningEvent event;
    event.set_type("metrics");
    event.set_level(v1::FineTuningEvent::LEVEL_INFO);
    event.mutable_metrics()->set_step(step);
    event.mutable_metrics()->set_train_loss(loss);
    return event;
  }
  static v1::FineTuningEvent evaluated(uint32_t step, double loss) {
    v1::FineTuningEvent event;
    event.set_type("eval_complete");
    event.set_level(v1::FineTuningEvent::LEVEL_INFO);
    event.mutable_eval_complete()->set_step(step);
    event.mutable_eval_complete()->set_valid_loss(loss);
    return event;
  }
  // A job that has trained three updates and ended well.
  v1::FineTuningJob ended() {
    const auto job = create_good();
    enlist();
    const auto work = claimed();
    beat(work, 1, "w1", {trained(1, 3.5), trained(2, 2.5), evaluated(2, 2.25), trained(3, 2)});
    EXPECT_EQ(finish_well(work), "SUCCEEDED");
    return get(job.id());
  }
  base::Result<v1::File> file(const std::string& id) {
    v1::GetFileRequest request;
    request.set_id(id);
    return call(*files_, &FileStub::GetFile, request);
  }
  // Ids of the list of results, page by page.
  std::vector<std::string> listed(int page_size) {
    v1::ListFilesRequest request;
    request.set_purpose(v1::FILE_PURPOSE_FINE_TUNE_RESULTS);
    request.set_page_size(page_size);
    std::vector<std::string> ids;
    do {
      const auto page = call(*files_, &FileStub::ListFiles, request);
      EXPECT_TRUE(page.ok()) << page.status().to_string();
      if (!page.ok()) break;
      EXPECT_LE(page->files_size(), page_size);
      for (const auto& file : page->files()) ids.push_back(file.id());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return ids;
  }
};

TEST_F(ResultFileTest, AnEndedJobsCurvesAreTwoFilesAndGoWithIt) {
  const auto job = ended();
  ASSERT_EQ(job.result_files_size(), 2) << job.DebugString();
  const auto csv = file(job.result_files(0)), lines = file(job.result_files(1));
  ASSERT_TRUE(csv.ok() && lines.ok()) << csv.status().to_string();
  EXPECT_EQ(csv->purpose(), v1::FILE_PURPOSE_FINE_TUNE_RESULTS);
  EXPECT_EQ(csv->state(), v1::FILE_STATE_READY);
  EXPECT_THAT(csv->filename(), HasSubstr(".csv"));
  EXPECT_THAT(lines->filename(), HasSubstr(".jsonl"));
  const std::string bytes = download_file(csv->id());
  EXPECT_EQ(csv->bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(csv->sha256(), base::sha256_hex(bytes));
  std::istringstream rows(bytes);
  std::string row;
  std::getline(rows, row);
  EXPECT_THAT(row, testing::StartsWith("step,epoch,train_loss,valid_loss"));
  const char* want[] = {"1,0.0,3.5,,", "2,0.0,2.5,2.25,", "3,0.0,2.0,,"};
  for (const char* start : want) {
    ASSERT_TRUE(std::getline(rows, row));
    EXPECT_THAT(row, testing::StartsWith(start));
  }
  EXPECT_THAT(download_file(lines->id()), HasSubstr("\"valid_loss\":2.25"));

  v1::DeleteFileRequest remove;
  remove.set_id(csv->id());
  expect_refused(call(*files_, &FileStub::DeleteFile, remove).status(), "FILE_IN_USE", "");
  // No data to train on.
  v1::CreateFineTuningJobRequest create;
  *create.mutable_spec() = spec(lines->id());
  expect_refused(this->create(create).status(), "RESOURCE_NOT_FOUND", "training_file");

  v1::DeleteFineTuningJobRequest gone;
  gone.set_id(job.id());
  ASSERT_TRUE(call(*jobs_, &JobStub::DeleteFineTuningJob, gone).ok());
  EXPECT_EQ(file(csv->id()).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(ResultFileTest, AreListedByTheirPurposeAlone) {
  const auto first = ended(), second = ended();
  const auto waiting = create_good();
  EXPECT_EQ(get(waiting.id()).result_files_size(), 0);
  const std::vector<std::string> want = {second.result_files(0), second.result_files(1),
                                         first.result_files(0), first.result_files(1)};
  for (const int page : {1, 2, 3, 10}) EXPECT_EQ(listed(page), want) << page;
  const auto uploaded = call(*files_, &FileStub::ListFiles, v1::ListFilesRequest{});
  ASSERT_TRUE(uploaded.ok()) << uploaded.status().to_string();
  for (const auto& each : uploaded->files()) EXPECT_EQ(each.purpose(), v1::FILE_PURPOSE_FINE_TUNE);
  v1::UploadFileRequest::Header header;
  header.set_purpose(v1::FILE_PURPOSE_FINE_TUNE_RESULTS);
  expect_refused(upload(row(1), header).status(), "INVALID_FIELD", "purpose");
}

}  // namespace
}  // namespace dex::server
