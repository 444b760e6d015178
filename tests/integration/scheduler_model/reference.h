#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "tests/support/store_snapshot.h"

namespace dex::model {

using Fields = support::StoreSnapshot::Fields;

// A request_id that was answered, by "<tenant>:<request_id>".
struct Request {
  std::string digest, ids;
};
using Requests = std::map<std::string, Request>;

// What one call must answer and what it must do to the store. What is not named stays as it was.
struct Expected {
  std::string word;                            // the script's own word for it (jobs.md §3)
  std::string reply;                           // as answers.h writes the repository's answer
  std::map<std::string, Fields> jobs;          // made or changed, afterwards
  std::string gone;                            // a job that was purged
  std::vector<std::string> events;             // "job state epoch worker why", in order
  Requests requests;                           // remembered with it
  std::map<std::string, std::string> workers;  // id → state, of those that change
  std::map<std::string, double> cfg;           // fields that must have these values
  std::set<std::string> hashes;  // file and adapter records that are made, changed or removed
  std::map<std::string, bool> desired;  // adapters of which this changes: are workers to hold them?
  std::map<std::string, double> logs;   // how long a job's log is afterwards, where it may be cut
  // GPU-seconds on a tenant's account.
  struct Charge {
    std::string tenant, pool;
    double amount = 0;
    bool claim = false;  // then its virtual time moves by exactly amount / weight; else it may rise
                         // to the ring's smallest besides
  };
  std::vector<Charge> charges;
  // (tenant, pool) → the virtual time afterwards, of tenants that a claim passed over.
  std::map<std::pair<std::string, std::string>, double> turns;
};

// jobs.md §2, §3 and §6 a second time, in C++ and from the page, not from the scripts: what a call
// does to a store that looks like `before`. Use an object for one call.
class Reference {
 public:
  Reference(const support::StoreSnapshot& before, int64_t now_ms, const Requests& requests,
            const store::StoreTimes& times)
      : before_(before), now_ms_(now_ms), requests_(requests), times_(times) {}

  using Jobs = store::JobRepository;
  Expected submit(const std::string& tenant, const Jobs::Submission& submission);
  Expected claim(const Jobs::ClaimRequest& request);
  Expected beat(const Jobs::Beat& beat);
  Expected finish(const Jobs::Finish& finish);
  Expected cancel(const std::string& tenant, const std::string& id, const store::RequestKey& key);
  Expected pause(const std::string& tenant, const std::string& id, const store::RequestKey& key);
  Expected resume(const std::string& tenant, const std::string& id, const store::RequestKey& key);
  Expected redrive(const std::string& tenant, const std::string& id,
                   const store::RequestKey& operation, int64_t deadline_ms);
  Expected update(const std::string& tenant, const std::string& id, const Jobs::Update& update,
                  const store::RequestKey& key);
  Expected purge_mark(const std::string& tenant, const std::string& id, int64_t retention_ms,
                      const store::RequestKey& key);
  Expected purge_commit(const std::string& tenant, const std::string& id,
                        const store::RequestKey& key);
  Expected ask_checkpoint(const std::string& tenant, const std::string& id,
                          const std::string& checkpoint, const store::RequestKey& key);
  Expected put_file(const std::string& tenant, const store::RequestKey& key, const std::string& id,
                    int max_files);
  Expected remove_file(const std::string& tenant, const std::string& id,
                       const store::RequestKey& key);
  Expected archived(const std::string& id, int64_t sequence);
  Expected desire_adapter(const std::string& tenant, const std::string& id, bool loaded,
                          const store::RequestKey& key);
  Expected forget_adapter(const std::string& tenant, const std::string& id,
                          const store::RequestKey& key);
  // op: register, alive, drain, gone.
  Expected worker(const std::string& op, const std::string& id);
  Expected sweep();

 private:
  Expected answer(const std::string& word, const std::string& reply);
  Expected refuse(const std::string& word, const std::string& reason) {
    return answer(word, reason);
  }
  bool known(const std::string& tenant, const store::RequestKey& key, bool with_ids);
  void remember(const std::string& tenant, const store::RequestKey& key, const std::string& ids);

  // A job as it is by now, and one that is about to change. Null and empty: there is none.
  [[nodiscard]] const Fields* find(const std::string& id) const;
  [[nodiscard]] const Fields* find(const std::string& tenant, const std::string& id) const;
  Fields& change(const std::string& id);
  void event(const std::string& id, const std::string& epoch, const std::string& worker,
             const std::string& why);

  [[nodiscard]] bool owned(const Fields* job, const std::string& worker, int64_t epoch) const;
  [[nodiscard]] double limit(const std::string& tenant, const char* name, double other) const;
  [[nodiscard]] bool served(const std::string& tenant, const std::string& pool) const;
  [[nodiscard]] std::string refused_file(const std::string& tenant, const std::string& files) const;
  [[nodiscard]] bool lacks_adapter(const std::string& tenant, const std::string& uses) const;
  void count_up(const std::string& revision);  // a field of `cfg`
  [[nodiscard]] std::string head(const std::string& pool, const Fields& worker) const;
  [[nodiscard]] bool anybody_takes(const std::string& tenant, const std::string& pool) const;
  void pass_over(const std::string& pool, const std::string& served_tenant, double turn);

  void make(const std::string& tenant, const store::NewJob& job);
  void start(Fields& job, const Jobs::ClaimRequest& request);
  void point_to(Fields& job, const store::Checkpoint& checkpoint);
  void end_attempt(Fields& job);
  void requeue(Fields& job, double delay_ms);
  void terminal(Fields& job, const std::string& state);
  void failed(Fields& job, const std::string& code);
  void crashed(Fields& job);
  void end_by(Fields& job, const Jobs::Finish& finish);
  void stop(const std::string& id, const std::string& code);
  void lose(const std::string& id);
  [[nodiscard]] std::vector<std::string> due(const std::vector<std::string>& states,
                                             const std::string& field, double last) const;

  const support::StoreSnapshot& before_;
  const int64_t now_ms_;
  const Requests& requests_;
  const store::StoreTimes& times_;
  Expected expected_;
};

}  // namespace dex::model
