#include "tests/integration/scheduler_scale/full_store.h"

#include <algorithm>
#include <cstdlib>

#include "services/base/sha256.h"

namespace dex::scale {

namespace {

constexpr size_t kUlid = 26;  // characters

std::string as_ulid(const std::string& name, int n) {
  const std::string number = std::to_string(n);
  return name + std::string(kUlid - name.size() - number.size(), '0') + number;
}

store::Store::Options options_for(support::RedisServer& server,
                                  const std::function<int64_t()>& clock_ms) {
  store::Store::Options options;
  options.redis.address = server.address();
  options.redis.patience = std::chrono::seconds(20);
  options.clock_ms = clock_ms;
  return options;
}

}  // namespace

std::string tenant_name(int i) {
  return "t" + std::to_string(i);
}

std::string pool_name(int i) {
  return "p" + std::to_string(i);
}

std::string job_id(const std::string& name, int n) {
  return "ftjob-" + as_ulid(name, n);
}

std::string file_id(int tenant) {
  return "file-" + as_ulid("t", tenant);
}

std::unique_ptr<support::RedisServer> large_server() {
  auto server =
      std::make_unique<support::RedisServer>("maxmemory 2gb\nauto-aof-rewrite-percentage 0\n");
  server->call({"HSET", "dex:{s0}:cfg", "testclock", "1"});
  return server;
}

void fill(support::RedisServer& server, int jobs, int a_call, const std::string& name,
          const std::function<int64_t()>& clock_ms) {
  server.call({"CONFIG", "SET", "appendfsync", "no"});
  store::Store store(options_for(server, clock_ms));
  store::JobRepository repository(store);
  for (int i = 0; i < kTenants; ++i) {
    ASSERT_TRUE(store.set_tenant(tenant_name(i), 1 + i % 3, 1'000'000, 1000, 0).ok());
    server.call(
        {"HSET", store.key("file:" + file_id(i)), "tenant", tenant_name(i), "state", "READY"});
  }
  int made = 0;
  for (int call = 0; made < jobs; ++call) {
    const int tenant = call % kTenants;
    store::JobRepository::Submission submission;
    submission.request.id = "server-" + as_ulid(name, call);
    submission.request.digest = base::sha256_hex(submission.request.id);
    const int n = std::min(a_call, jobs - made);
    for (int i = 0; i < n; ++i, ++made) {
      store::NewJob job;
      job.id = job_id(name, made);
      job.pool = pool_name(made % kPools);
      job.priority = made % 10;
      job.cost_gpu_seconds = 60;
      job.base_model = "smollm2-135m";
      job.adapter = "ft:smollm2-135m:" + tenant_name(tenant) + "::" + as_ulid(name, made);
      job.files = {file_id(tenant)};
      job.spec = std::string(1024, 's');
      submission.jobs.push_back(std::move(job));
    }
    const auto submitted = repository.submit(tenant_name(tenant), submission);
    ASSERT_TRUE(submitted.ok()) << submitted.status().to_string();
  }
  server.call({"CONFIG", "SET", "appendfsync", "always"});
}

int64_t used_memory(support::RedisServer& server) {
  const std::string info = server.call({"INFO", "memory"}).text;
  const size_t at = info.find("used_memory:");
  return at == std::string::npos ? 0 : std::atoll(info.c_str() + at + 12);
}

FullStoreTest::Filled* FullStoreTest::filled_ = nullptr;

void FullStoreTest::SetUpTestSuite() {
  filled_ = new Filled;
  filled_->server = large_server();
  const auto clock_ms = [] { return filled_->clock.now_ms(); };
  fill(*filled_->server, kJobs - 2 * kOneByOne, 64, "many", clock_ms);
  // Each costs what it does among so many: sets of a few members would be smaller.
  const int64_t many = used_memory(*filled_->server);
  fill(*filled_->server, kOneByOne, 64, "more", clock_ms);
  const int64_t more = used_memory(*filled_->server);
  fill(*filled_->server, kOneByOne, 1, "one", clock_ms);
  filled_->bytes_in_all = used_memory(*filled_->server);
  filled_->bytes_a_job = (filled_->bytes_in_all - more) / kOneByOne;
  filled_->bytes_a_request = filled_->bytes_a_job - (more - many) / kOneByOne;
}

void FullStoreTest::TearDownTestSuite() {
  delete filled_;
  filled_ = nullptr;
}

std::unique_ptr<store::Store> FullStoreTest::new_store() {
  return std::make_unique<store::Store>(
      options_for(*filled_->server, [] { return filled_->clock.now_ms(); }));
}

}  // namespace dex::scale
