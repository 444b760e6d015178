#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "dex/internal/v1/worker.grpc.pb.h"
#include "dex/v1/adapters.grpc.pb.h"
#include "dex/v1/files.grpc.pb.h"
#include "dex/v1/finetuning.grpc.pb.h"
#include "dex/v1/models.grpc.pb.h"
#include "scheduler/server/scheduler.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"
#include "tests/support/redis_server.h"
#include "tests/support/temporary_directory.h"

namespace dex::server {

namespace iv1 = dex::internal::v1;
using AdapterStub = v1::AdapterService::Stub;
using FileStub = v1::FileService::Stub;
using JobStub = v1::FineTuningService::Stub;
using ModelStub = v1::ModelService::Stub;

// Contents by name.
using FileContents = std::map<std::string, std::string>;

// A scheduler in this process on a Redis of its own, spoken to over loopback as gateways and
// workers do. Sweeps and back-offs are fast, leases long, so that a slow machine changes no result.
class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest();

  SchedulerOptions options();
  // Waits until it is ready.
  std::unique_ptr<Scheduler> start(const SchedulerOptions& options);
  void restart();  // of the scheduler, on the same data

  // A file of `rows` good rows. Fails the test unless it becomes READY.
  std::string upload_good(int rows = 50, int longest = 200);
  base::Result<v1::File> upload(const std::string& bytes, v1::UploadFileRequest::Header header = {},
                                std::string* replayed = nullptr);
  std::string download_file(const std::string& id);  // its bytes; fails the test if it can't
  v1::FineTuningJobSpec spec(const std::string& file);
  base::Result<v1::FineTuningJob> create(const v1::CreateFineTuningJobRequest& request,
                                         bool* replayed = nullptr);
  v1::FineTuningJob create_good(const std::string& request_id = "");
  v1::FineTuningJob get(const std::string& id);

  void enlist(const std::string& worker = "w1", const std::vector<std::string>& models = {});
  iv1::ClaimResponse claim(const std::string& worker = "w1", int64_t wait_ms = 0,
                           const std::string& claim_id = "");
  iv1::ClaimedJob claimed();  // w1's next job, which it waits for
  iv1::HeartbeatResponse beat(const iv1::ClaimedJob& job, int64_t sequence,
                              const std::string& worker = "w1",
                              std::vector<v1::FineTuningEvent> events = {});
  // As if nothing had been heard of its worker for long: the next sweep takes the job from it.
  void let_lease_run_out(const std::string& job);
  // Beats until the answer is to cancel; false: it never is.
  bool is_told_to_stop(const iv1::ClaimedJob& job);
  // Writes what a worker publishes, with its checksums.json (unless `files` has one), and reports
  // the attempt as a success with `result`. The state that follows.
  std::string publish_files(const iv1::ClaimedJob& job, const std::string& worker,
                            FileContents files, iv1::AttemptResult result = {});
  // publish_files with an adapter.
  std::string finish_well(const iv1::ClaimedJob& job, const std::string& worker = "w1",
                          const std::string& artifact_class = "KVO",
                          const std::string& form = "paper", const std::string& method = "");
  std::string finish(const iv1::ClaimedJob& job, iv1::Outcome outcome, const std::string& code = "",
                     const std::string& worker = "w1");
  // What the engine of a worker holds, as its heartbeat says.
  iv1::HeartbeatResponse report_engine(const std::string& worker,
                                       std::vector<iv1::AdapterStatus> adapters = {},
                                       int64_t desired_revision = 0);
  // A job from create to SUCCEEDED; its adapter's id.
  std::string train_adapter(const std::string& artifact_class = "KVO",
                            const std::string& form = "paper", const std::string& method = "");

  std::string http(const std::string& path);  // of the metrics port; status line and body

  // One call on a stub with a deadline; the error as ours. `replayed`: whether the answer was
  // marked dex-replayed.
  template <typename Stub, typename Request, typename Reply>
  base::Result<Reply> call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
      const Request& request, int64_t timeout_ms = 20000, bool* replayed = nullptr) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::milliseconds(timeout_ms));
    Reply reply;
    const grpc::Status status = (stub.*method)(&context, request, &reply);
    if (replayed != nullptr)
      *replayed = context.GetServerTrailingMetadata().contains("dex-replayed");
    if (!status.ok()) return rpc::from_grpc(status);
    return reply;
  }

  support::RedisServer redis_;
  support::TemporaryDirectory directory_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<v1::FineTuningService::Stub> jobs_;
  std::unique_ptr<v1::FileService::Stub> files_;
  std::unique_ptr<v1::AdapterService::Stub> adapters_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<iv1::WorkerService::Stub> workers_;
  std::unique_ptr<iv1::RouteService::Stub> routes_;
  int next_ = 0;
  int64_t lease_ms_ = 20'000;          // takes effect at the next restart()
  int64_t archive_after_ms_ = 60'000;  // likewise, as the next
  // Long, since a busy disk may keep Redis for seconds; short where a test takes Redis away.
  std::chrono::milliseconds store_patience_{10'000};

  void connect();  // to a scheduler that a test put in place itself
  // A channel that stands: the first call would fail instead of waiting for one that a busy machine
  // is slow to make.
  static std::shared_ptr<grpc::Channel> connected(const std::string& address);
};

// One row of a prompt_completion file.
std::string row(int number, int length = 100);

// checksums.json of an artefact of these files.
std::string checksums_of(const FileContents& files);

// An error of that reason which names that field, unless it is empty.
void expect_refused(const base::Status& status, const std::string& reason,
                    const std::string& field);

}  // namespace dex::server
