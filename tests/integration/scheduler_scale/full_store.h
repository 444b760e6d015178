#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/store/job_repository.h"
#include "scheduler/store/worker_repository.h"
#include "tests/support/manual_clock.h"
#include "tests/support/redis_server.h"

namespace dex::scale {

constexpr int kTenants = 200;
constexpr int kPools = 16;
constexpr int kJobs = 100'000;
constexpr int kOneByOne = 4000;  // of them: not in calls of 64

std::string tenant_name(int i);  // "t0" …
std::string pool_name(int i);    // "p0" …
// What fill() makes, as long as the scheduler's own ids: "ftjob-", `name`, and `n` with noughts
// before it.
std::string job_id(const std::string& name, int n);
std::string file_id(int tenant);  // the file of all its jobs

// A server that may hold 2 GiB and does not rewrite its log, which takes both cores for a while.
std::unique_ptr<support::RedisServer> large_server();

// Queues `jobs` jobs as the scheduler makes them, with specs of 1 KiB, spread over tenants and
// pools, up to 64 a call. Fast, for it does not wait for the disk.
void fill(support::RedisServer& server, int jobs, int a_call, const std::string& name,
          const std::function<int64_t()>& clock_ms);

// used_memory of INFO.
int64_t used_memory(support::RedisServer& server);

// One store with kJobs queued jobs for all tests of the binary.
class FullStoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  static std::unique_ptr<store::Store> new_store();

  struct Filled;
  static Filled* filled_;
};

struct FullStoreTest::Filled {
  std::unique_ptr<support::RedisServer> server;
  support::ManualClock clock;
  int64_t bytes_in_all = 0;     // with all of them queued, nearly all in calls of 64
  int64_t bytes_a_job = 0;      // of one more that is submitted alone
  int64_t bytes_a_request = 0;  // what it takes more than one among 64: its request_id
};

}  // namespace dex::scale
