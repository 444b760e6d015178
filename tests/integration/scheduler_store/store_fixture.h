#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/store.h"
#include "scheduler/store/worker_repository.h"
#include "tests/support/manual_clock.h"
#include "tests/support/redis_server.h"

namespace dex::store {

// A store on a private Redis whose scripts get the test's clock. One server a binary, emptied
// before each test. After each test the invariants of jobs.md §14 are checked.
class StoreTest : public testing::Test {
 protected:
  StoreTest();
  void TearDown() override;

  static support::RedisServer& server();
  std::unique_ptr<Store> make_store();

  // Shorthands. They fail the test when the store answers an error.
  std::string submit(const std::string& tenant = "default", NewJob job = {});
  JobRepository::Claim claim(const std::string& worker, const std::string& claim_id = "",
                             int slot = 0);
  JobRepository::Finished finish(const ClaimedJob& job, const std::string& worker,
                                 const std::string& outcome);
  JobRepository::BeatReply beat(const ClaimedJob& job, const std::string& worker, int64_t sequence);
  JobRecord job(const std::string& id, const std::string& tenant = "default");
  std::string state(const std::string& id) { return job(id).state; }
  void enlist(const std::string& worker, const std::vector<std::string>& models = {});
  std::vector<std::string> log_types(const std::string& id);
  int64_t zcard(const std::string& name);

  support::ManualClock clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobRepository> jobs_;
  std::unique_ptr<FileRepository> files_;
  std::unique_ptr<AdapterRepository> adapters_;
  std::unique_ptr<WorkerRepository> workers_;
  int next_ = 0;
};

}  // namespace dex::store
