// api.md §1: a call that is sent again under its request_id has its first result, whatever has
// happened since; the same id for anything else is a conflict. Create and upload: cycle_test.cc,
// file_test.cc.
#include <thread>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class IdempotencyTest : public SchedulerTest {
 protected:
  template <typename Request>
  static Request request(const std::string& id, const std::string& request_id) {
    Request request;
    request.set_id(id);
    request.set_request_id(request_id);
    return request;
  }
  base::Result<v1::DeleteFileResponse> remove(const std::string& id, const std::string& request_id,
                                              bool* replayed = nullptr) {
    return call(*files_, &v1::FileService::Stub::DeleteFile,
                request<v1::DeleteFileRequest>(id, request_id), 20000, replayed);
  }
  base::Result<v1::FineTuningJob> cancel(const std::string& id, const std::string& request_id,
                                         bool* replayed = nullptr) {
    return call(*jobs_, &v1::FineTuningService::Stub::CancelFineTuningJob,
                request<v1::CancelFineTuningJobRequest>(id, request_id), 20000, replayed);
  }
  base::Result<v1::LoadAdapterResponse> load(const std::string& id, const std::string& request_id,
                                             bool* replayed = nullptr) {
    auto ask = request<v1::LoadAdapterRequest>(id, request_id);
    ask.set_wait_seconds(20);
    return call(*adapters_, &v1::AdapterService::Stub::LoadAdapter, ask, 30000, replayed);
  }
  base::Result<v1::Adapter> unload(const std::string& id, const std::string& request_id,
                                   bool* replayed = nullptr) {
    return call(*adapters_, &v1::AdapterService::Stub::UnloadAdapter,
                request<v1::UnloadAdapterRequest>(id, request_id), 20000, replayed);
  }
  v1::Adapter adapter(const std::string& id) {
    v1::GetAdapterRequest get;
    get.set_id(id);
    return *call(*adapters_, &v1::AdapterService::Stub::GetAdapter, get);
  }
};

TEST_F(IdempotencyTest, ARepeatedDeletionIsNotAMissingFile) {
  const auto id = upload_good();
  const auto other = upload_good();
  bool replayed = true;
  ASSERT_TRUE(remove(id, "delete-1", &replayed).ok());
  EXPECT_FALSE(replayed);
  restart();  // it is the store that remembers
  const auto again = remove(id, "delete-1", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->id(), id);
  EXPECT_TRUE(replayed);

  EXPECT_EQ(remove(other, "delete-1").status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(remove(other, "delete-1").status().code(), base::Code::kAlreadyExists);
  EXPECT_TRUE(remove(other, "delete-2").ok());
  EXPECT_EQ(remove(id, "delete-3").status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(remove(id, std::string(65, 'x')).status().violations().at(0).field, "request_id");
}

TEST_F(IdempotencyTest, ManySendersOfOneDeletionAllHearTheSame) {
  const auto id = upload_good();
  std::vector<base::Status> heard(16);
  {
    std::vector<std::jthread> threads;
    for (auto& status : heard)
      threads.emplace_back([&] { status = remove(id, "at-once").status(); });
  }
  for (const auto& status : heard) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(IdempotencyTest, ARepeatedCancelIsNotAConflictWithTheJobsEnd) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  bool replayed = true;
  EXPECT_EQ(cancel(job.id(), "cancel-1", &replayed)->state(), v1::JOB_STATE_CANCELLING);
  EXPECT_FALSE(replayed);
  EXPECT_EQ(finish_well(claimed), "SUCCEEDED");  // success beats a late cancel
  EXPECT_EQ(cancel(job.id(), "cancel-2").status().reason(), "JOB_STATE_CONFLICT");
  const auto again = cancel(job.id(), "cancel-1", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->state(), v1::JOB_STATE_SUCCEEDED);
  const auto waiting = create_good();
  EXPECT_EQ(cancel(waiting.id(), "cancel-1").status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(get(waiting.id()).state(), v1::JOB_STATE_QUEUED);
}

TEST_F(IdempotencyTest, ARepeatedLoadDoesNotUndoTheUnloadBetween) {
  const auto id = train_adapter();
  iv1::AdapterStatus held;
  held.set_id(id);
  held.set_content_sha256(adapter(id).content_sha256());
  held.set_state(v1::Replica::STATE_LOADED);
  report_engine("w1", {held});
  bool replayed = true;
  ASSERT_TRUE(load(id, "load-1", &replayed).ok());
  EXPECT_FALSE(replayed);
  ASSERT_TRUE(unload(id, "unload-1", &replayed).ok());
  EXPECT_FALSE(replayed);
  report_engine("w1");  // the worker has let it go
  const auto again = load(id, "load-1", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(adapter(id).desired(), v1::Adapter::DESIRED_ABSENT);
  ASSERT_TRUE(unload(id, "unload-1", &replayed).ok());
  EXPECT_TRUE(replayed);
  // An unload has the bytes of a load: the kind of the call counts.
  EXPECT_EQ(unload(id, "load-1").status().reason(), "IDEMPOTENCY_CONFLICT");
}

}  // namespace
}  // namespace dex::server
