#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "dex/v1/finetuning.pb.h"
#include "scheduler/store/store.h"
#include "tests/support/cut_proxy.h"
#include "tests/support/event_counts.h"
#include "tests/support/program.h"
#include "tests/support/redis_server.h"
#include "tests/support/temporary_directory.h"

namespace dex::support {

// The programs of a platform without dexd, each in the hand of the test: Redis, schedulers, a
// gateway and agents, which train the toy (toy_trainer.cc) on a tiny model. Everything it starts
// dies with the thread that made it, which alone may use it, but for redis().call() and state().
class ChaosPlatform {
 public:
  // For tests in which scheduler and Redis live: a lease that runs out is noticed from the start.
  static constexpr store::StoreTimes kNoSettling{3000, 0, 2000, 0, 0, 9000};

  struct Options {
    int schedulers = 1, agents = 1;
    // A tenth of the usual lease, and crashes and failures are tried again at once. Settle window
    // and silence of a worker are longer than that: the times after which an agent connects and
    // beats again (2.4 s and 2 s) do not shrink with the lease.
    store::StoreTimes times{3000, 6000, 2000, 0, 0, 9000};
    int64_t sweep_ms = 500, beat_ms = 1000;
    int64_t stop_grace_ms = 5000, kill_grace_ms = 1000, inference_grace_ms = 2000;
    // A relay before the schedulers for every agent and one for the gateway: each then finds any
    // scheduler that lives. Without, agent n and the gateway know one scheduler by its address.
    bool proxies = false;
    std::filesystem::path trainer;  // default: the toy
    std::filesystem::path engine;   // default: none; agents then serve nothing
    std::vector<std::string> redis_launcher;
  };
  // Starts everything, waits until it is ready and uploads a training file. Throws.
  explicit ChaosPlatform(const Options& options);
  ChaosPlatform() : ChaosPlatform(Options()) {}
  ~ChaosPlatform();

  RedisServer& redis() { return redis_; }
  Program& scheduler(int i = 0) { return *schedulers_.at(static_cast<size_t>(i)); }
  Program& gateway() { return *gateway_; }
  Program& agent(int i = 0) { return *agents_.at(static_cast<size_t>(i)); }
  [[nodiscard]] const std::vector<std::unique_ptr<Program>>& schedulers() { return schedulers_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Program>>& agents() { return agents_; }
  // Only with Options::proxies.
  CutProxy& agent_link(int i) { return *agent_links_.at(static_cast<size_t>(i)); }
  CutProxy& gateway_link() { return *gateway_link_; }
  // Whose worker holds a job: "agent-1" → 1.
  static int agent_of(const std::string& worker) { return worker.back() - '0'; }

  client::Client& api() { return *client_; }
  [[nodiscard]] const std::string& grpc() const { return grpc_; }  // the gateway's address
  [[nodiscard]] const std::filesystem::path& data_dir() const { return data_dir_; }
  [[nodiscard]] const std::string& training_file() const { return training_; }
  [[nodiscard]] const std::string& validation_file() const { return validation_; }

  // `manner` as in toy_trainer.cc.
  [[nodiscard]] v1::CreateFineTuningJobRequest request(const std::string& manner, uint32_t steps,
                                                       uint32_t checkpoint_every = 5) const;
  // The job's id; throws when it is refused.
  std::string submit(const std::string& manner, uint32_t steps, uint32_t checkpoint_every = 5);
  // Any number of crashes: for tests that kill more than a job's own share.
  void forgive_crashes(const std::string& id);
  // Opens the gate of the toy, for all attempts or for one.
  void open_gate(const std::string& id, int attempt = 0) const;

  // The job as the store has it; empty when the store is away. Also usable from other threads.
  std::map<std::string, std::string> record(const std::string& id);
  std::string state(const std::string& id) { return record(id)["state"]; }
  int64_t number(const std::string& id, const std::string& field);  // 0 when missing
  // Steps that the store knows of.
  uint32_t step(const std::string& id);
  bool becomes(const std::string& id, const std::string& state, int64_t limit_ms = 60'000);
  bool reaches(const std::string& id, uint32_t step, int64_t limit_ms = 60'000);
  // Transitions of a job, oldest first: state, worker, why, ms as the store's clock had it.
  std::vector<std::map<std::string, std::string>> transitions(const std::string& id);
  // The newest event of a type in the job's log; its own type is empty when there is none.
  v1::FineTuningEvent last_event(const std::string& id, const std::string& type);
  // The settle window is over: from now on a lease that runs out is noticed.
  bool settled();

  // Everything runs and is ready.
  bool ready(int64_t limit_ms = 60'000);
  // Stops agents, gateway and schedulers by SIGTERM; false when one of them had to be killed.
  bool stop();
  // stop(), then what is wrong with the store (jobs.md §14), with any artefact, with a published
  // chain, or with what the schedulers have counted; empty: nothing.
  std::vector<std::string> wrong();
  // What the schedulers count while `work` is done and the events of that time say otherwise (P18).
  // First waits until every job has ended.
  std::vector<std::string> miscounted_during(const std::function<void()>& work);

 private:
  bool stop_agents_and_gateway();
  bool stop_schedulers();
  CounterValues counted();  // over all schedulers that run, since they were started
  // What they have counted since `before` and `events` say otherwise, once they have had the time.
  std::vector<std::string> miscounted(EventCounts& events, const CounterValues& before);
  // Schedulers were killed with what they had counted, or did not get an answer of the store's.
  bool lost_counts();
  void start_redis_side();
  std::unique_ptr<Program> new_scheduler(int i);
  std::unique_ptr<Program> new_gateway();
  std::unique_ptr<Program> new_agent(int i);
  std::string upload(const std::string& side, int rows);

  const Options options_;
  const TemporaryDirectory directory_;
  const std::filesystem::path data_dir_, models_file_;
  RedisServer redis_;
  std::unique_ptr<store::Store> store_;
  std::vector<std::string> scheduler_grpc_, scheduler_worker_;  // addresses
  std::string grpc_;
  std::vector<std::unique_ptr<CutProxy>> agent_links_;
  std::unique_ptr<CutProxy> gateway_link_;
  std::vector<std::unique_ptr<Program>> schedulers_, agents_;
  std::unique_ptr<Program> gateway_;
  std::unique_ptr<client::Client> client_;
  std::string training_, validation_;
};

// Programs for Options::trainer and engine.
std::filesystem::path toy_trainer();
std::filesystem::path fake_engine();
std::filesystem::path real_trainer();
std::filesystem::path real_engine();

// Lets time pass, where the passing itself is what a test is about: how long an outage lasts.
void pass_time(int64_t ms);

}  // namespace dex::support
