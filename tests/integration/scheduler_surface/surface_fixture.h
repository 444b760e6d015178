#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dex/v1/admin.grpc.pb.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {

using AdminStub = v1::AdminService::Stub;

// A scheduler and everything that is done to jobs that exist. Ids of requests: empty = none.
class SurfaceTest : public SchedulerTest {
 protected:
  SurfaceTest();
  // After the fixture's restart() or another scheduler: the stub that it does not know.
  void reconnect();

  base::Result<v1::FineTuningJob> pause(const std::string& id, const std::string& request_id = "",
                                        bool* replayed = nullptr);
  base::Result<v1::FineTuningJob> resume(const std::string& id, const std::string& request_id = "",
                                         bool* replayed = nullptr);
  base::Result<v1::FineTuningJob> update(const v1::UpdateFineTuningJobRequest& request);
  base::Result<v1::FineTuningJob> redrive(const std::string& id, const std::string& request_id = "",
                                          bool* replayed = nullptr);
  base::Result<v1::DeleteFineTuningJobResponse> remove(const std::string& id,
                                                       bool with_adapter = false,
                                                       const std::string& request_id = "",
                                                       bool* replayed = nullptr);
  base::Status status_of(const std::string& job);              // of GetFineTuningJob
  base::Status status_of_adapter(const std::string& adapter);  // of GetAdapter

  // A heartbeat of w1 for one attempt, as `fill` has it; that attempt's verdict.
  iv1::AttemptVerdict beat_as(const iv1::ClaimedJob& job, int64_t sequence,
                              const std::function<void(iv1::AttemptBeat&)>& fill);
  // Reports the end of an attempt, as `fill` has it.
  base::Result<iv1::FinishResponse> finish_as(const iv1::ClaimedJob& job, iv1::Outcome outcome,
                                              const std::function<void(iv1::FinishRequest&)>& fill);
  // A checkpoint of that attempt.
  static void offer(const iv1::ClaimedJob& job, int step, iv1::CheckpointRef& checkpoint);
  static v1::FineTuningEvent point(int step);

  // Sequences of all events of a job, by pages of ListFineTuningEvents.
  std::vector<int64_t> listed(const std::string& id);
  // Sequences that a watch tells until it ends; `status` of its end.
  std::vector<int64_t> watched(const std::string& id, int64_t after = 0,
                               grpc::Status* status = nullptr);

  std::filesystem::path folder_of(const std::string& job) const {
    return directory_ / "data/jobs/default" / job;
  }

  std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace dex::server
