#include "scheduler/server/diagnosis.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/server/times.h"
#include "services/base/files.h"
#include "services/base/version.h"

namespace dex::server {

namespace {

namespace iv1 = dex::internal::v1;

constexpr auto kFine = v1::Health::SEVERITY_OK;
constexpr auto kDoubtful = v1::Health::SEVERITY_WARN;
constexpr auto kBroken = v1::Health::SEVERITY_FAIL;

constexpr double kMuchMemory = 0.75, kTooMuchMemory = 0.95;  // of the store's limit
constexpr double kLittleDisk = 0.1;
constexpr int64_t kLeastDisk = int64_t{256} << 20;  // below it workers take no job
constexpr int64_t kClockApart_ms = 2000, kClocksBroken_ms = 60'000;
constexpr double kLongWait_seconds = 60;

std::string formatted(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string gigabytes(int64_t bytes) {
  return formatted("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string percent(double ratio) {
  return formatted("%.0f %%", 100 * ratio);
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

template <typename Names>
std::string listed_names(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// Collects the checks of one topic.
class Topic {
 public:
  Topic(v1::Health& health, std::string name) : health_(health), name_(std::move(name)) {}
  void add(const std::string& check, v1::Health::Severity severity, const std::string& finding,
           const std::string& remedy = "") {
    auto& entry = *health_.add_checks();
    entry.set_topic(name_);
    entry.set_name(check);
    entry.set_severity(severity);
    entry.set_finding(finding);
    if (severity != kFine) entry.set_remedy(remedy);
  }

 private:
  v1::Health& health_;
  const std::string name_;
};

bool keeps_what_it_acknowledges(const store::StoreFacts& facts) {
  return facts.append_only && facts.last_append == "ok" && facts.fsync == "always" &&
         facts.eviction == "noeviction";
}

void check_file(const store::StoreFacts& facts, Topic& topic) {
  const bool writes = facts.last_append == "ok";
  if (!facts.append_only) {
    topic.add("append-only file", kBroken, "off: a restart of Redis forgets every job",
              "set appendonly yes");
  } else if (!writes) {
    topic.add("append-only file", kBroken, "the last write failed: " + facts.last_append,
              "look at the disk of Redis, most likely it is full");
  } else {
    topic.add("append-only file", kFine, "on, and its last write went well");
  }
  if (facts.fsync == "always") {
    topic.add("fsync", kFine, "always: what is acknowledged is on the disk");
  } else {
    topic.add("fsync", kBroken,
              facts.fsync + ": the last second of acknowledged jobs is lost with the power",
              "set appendfsync always");
  }
  if (facts.fsync_in_rewrite == "yes") {
    topic.add("fsync while rewriting", kBroken, "off while the file is rewritten",
              "set no-appendfsync-on-rewrite no");
  }
}

void check_memory(const store::StoreFacts& facts, Topic& topic) {
  if (facts.eviction == "noeviction") {
    topic.add("eviction", kFine, "none: a full Redis refuses new jobs and keeps the old ones");
  } else {
    topic.add("eviction", kBroken, facts.eviction + ": a full Redis throws jobs away",
              "set maxmemory-policy noeviction");
  }
  if (facts.most_bytes == 0) {
    topic.add("memory", kDoubtful,
              gigabytes(facts.used_bytes) + " used, no limit: the kernel ends it when all is used",
              "set maxmemory; 1 GiB holds about 200,000 waiting jobs");
    return;
  }
  const double ratio =
      static_cast<double>(facts.used_bytes) / static_cast<double>(facts.most_bytes);
  const auto severity = ratio >= kTooMuchMemory ? kBroken
                        : ratio >= kMuchMemory  ? kDoubtful
                                                : kFine;
  topic.add("memory", severity,
            percent(ratio) + " of " + gigabytes(facts.most_bytes) +
                (severity == kBroken ? ": new jobs are refused, or soon will be" : " used"),
            "raise maxmemory, or keep ended jobs for fewer days (--retention-days)");
}

void check_copies(const store::StoreFacts& facts, Topic& topic) {
  const bool alone = facts.mode == "standalone" && facts.role == "master" && facts.replicas == 0;
  if (alone) {
    topic.add("copies", kFine, "one server: nothing is lost in a failover, since there is none");
    return;
  }
  topic.add("copies", kDoubtful,
            facts.mode + ", " + facts.role + " with " +
                counted(static_cast<size_t>(facts.replicas), "replica") +
                ": a failover forgets what had not been copied yet",
            "run one server on a disk that keeps what it is told; copy its file for a backup");
}

void check_store(const Observed& observed, v1::Health& health) {
  Topic topic(health, "store");
  if (!observed.store.ok()) {
    topic.add("Redis", kBroken, observed.store.status().message(),
              "start Redis and look at its log; running jobs and inference go on meanwhile");
    return;
  }
  const store::StoreFacts& facts = *observed.store;
  const bool known = std::atoi(facts.version.c_str()) >= 7;
  topic.add("Redis", known ? kFine : kBroken, "version " + facts.version + ", answers",
            "7.0 or newer is needed");
  check_file(facts, topic);
  check_memory(facts, topic);
  check_copies(facts, topic);
}

void check_disk(const Observed& observed, v1::Health& health) {
  Topic topic(health, "disk");
  if (!observed.free_bytes.ok()) {
    topic.add("data directory", kBroken, observed.free_bytes.status().message(),
              "make it readable for the scheduler");
  } else {
    const int64_t free = *observed.free_bytes;
    const bool little = observed.free_ratio < kLittleDisk;
    topic.add("data directory",
              free < kLeastDisk ? kBroken
              : little          ? kDoubtful
                                : kFine,
              gigabytes(free) + " free, " + percent(observed.free_ratio) +
                  (free < kLeastDisk ? ": workers take no jobs" : ""),
              "delete jobs, files or adapters that nobody needs, or give it a larger disk");
  }
  if (observed.store_free_ratio < kLittleDisk) {
    topic.add("disk of the store", kDoubtful,
              percent(observed.store_free_ratio) + " free: Redis ends when it is full",
              "make room on it; running jobs go on, new ones are refused until Redis is back");
  }
}

// No lease depends on a worker's clock (jobs.md §4): one that is wrong costs no work.
void check_workers_clocks(const Observed& observed, Topic& topic) {
  size_t told = 0;
  int64_t most = 0;
  bool well = true;
  for (const auto& worker : observed.workers) {
    if (!worker.clock_ahead_ms) continue;
    const int64_t apart = std::abs(*worker.clock_ahead_ms);
    ++told;
    most = std::max(most, apart);
    if (apart < kClockApart_ms) continue;
    well = false;
    topic.add("worker " + worker.id, kDoubtful,
              std::to_string(apart) + " ms " +
                  (*worker.clock_ahead_ms > 0 ? "ahead of" : "behind") +
                  " the scheduler: its log and its events tell wrong times",
              "set the clock of " + worker.host + " by NTP; leases don't depend on it");
  }
  if (told > 0 && well) {
    topic.add("scheduler and workers", kFine,
              counted(told, "worker") + ", at most " + std::to_string(most) + " ms apart");
  }
}

void check_clock(const Observed& observed, v1::Health& health) {
  if (!observed.store.ok()) return;
  Topic topic(health, "clock");
  const int64_t apart = std::abs(observed.now_ms - observed.store->now_ms);
  topic.add("scheduler and store",
            apart >= kClocksBroken_ms ? kBroken
            : apart >= kClockApart_ms ? kDoubtful
                                      : kFine,
            std::to_string(apart) + " ms apart" +
                (apart >= kClockApart_ms ? ": leases keep to the store's, other times don't" : ""),
            "set both by NTP");
  check_workers_clocks(observed, topic);
}

bool is_gpu(const iv1::Device& device) {
  return !device.kind().empty() && device.kind() != "cpu";
}

std::string engines_text(const iv1::HeartbeatRequest& live, bool& down) {
  std::string text;
  for (const auto& engine : live.engines()) {
    const bool lost = engine.state() == iv1::EngineStatus::STATE_DOWN;
    const bool serves = engine.state() == iv1::EngineStatus::STATE_SERVING;
    down = down || lost;
    text += (text.empty() ? "" : ", ") + engine.base() +
            (lost     ? " (down)"
             : serves ? ""
                      : " (not yet)");
  }
  return text.empty() ? "serves nothing" : "serves " + text;
}

void check_worker(const store::WorkerRecord& worker, Topic& topic) {
  iv1::RegisterRequest registered;
  iv1::HeartbeatRequest live;
  if (!registered.ParseFromString(worker.info) || !live.ParseFromString(worker.live)) {
    topic.add(worker.id, kDoubtful, "says what this scheduler does not understand",
              "run workers and scheduler of one version");
    return;
  }
  std::string devices;
  for (const auto& device : registered.devices()) {
    devices += (devices.empty() ? "" : ", ") + device.kind() +
               (device.memory_bytes() > 0 ? " " + gigabytes(device.memory_bytes()) : "");
  }
  bool down = false;
  const std::string engines = engines_text(live, down);
  const bool draining = worker.state != "up";
  topic.add(worker.id,
            down       ? kBroken
            : draining ? kDoubtful
                       : kFine,
            "on " + worker.host + ": " + (devices.empty() ? "no device named" : devices) + "; " +
                counted(static_cast<size_t>(worker.slots), "slot") + " for " +
                listed_names(worker.pools) + "; " + engines + (draining ? "; drains" : ""),
            down ? "its engine is started again; if it stays down, look at the worker's log"
                 : "it takes no more jobs; start another if that is not meant");
}

void check_versions(const Observed& observed, Topic& topic) {
  std::set<std::string> others;
  for (const auto& worker : observed.workers) {
    if (worker.version != observed.version) others.insert(worker.version);
  }
  topic.add("versions", others.empty() ? kFine : kDoubtful,
            others.empty()
                ? "all " + observed.version
                : "scheduler " + observed.version + ", workers also " + listed_names(others),
            "bring all to one version once their jobs have ended");
}

void check_workers(const Observed& observed, v1::Health& health) {
  if (!observed.store.ok()) return;  // they are known by it
  Topic topic(health, "workers");
  std::set<std::string> pools;
  for (const auto& worker : observed.workers) {
    if (worker.state == "up") pools.insert(worker.pools.begin(), worker.pools.end());
  }
  if (observed.workers.empty()) {
    topic.add("workers", kBroken, "none: jobs wait, and nothing is served",
              "start dex-worker, and look at its log if it runs");
  }
  for (const auto& worker : observed.workers) check_worker(worker, topic);
  if (!observed.workers.empty()) check_versions(observed, topic);
  for (const auto& pool : observed.pools) {
    if (pool.oldest_ready_seconds <= 0) continue;
    const bool nobody = !pools.contains(pool.pool);
    const bool late = pool.oldest_ready_seconds > kLongWait_seconds;
    topic.add("queue " + pool.pool,
              nobody ? kBroken
              : late ? kDoubtful
                     : kFine,
              "its oldest job waits for " + formatted("%.0f s", pool.oldest_ready_seconds) +
                  (nobody ? ", and no worker takes from this pool" : ""),
              nobody ? "start a worker for the pool " + pool.pool
                     : "more workers would shorten the queue");
  }
}

// Workers that can run a job on the model: one that names no models is given every job.
size_t workers_for(const Observed& observed, const std::string& model) {
  return static_cast<size_t>(
      std::count_if(observed.workers.begin(), observed.workers.end(), [&](const auto& worker) {
        const auto& models = worker.models;
        return worker.state == "up" &&
               (models.empty() || std::find(models.begin(), models.end(), model) != models.end());
      }));
}

void check_bases(const Observed& observed, v1::Health& health) {
  Topic topic(health, "models");
  if (observed.models.empty()) {
    topic.add("models", kBroken, "models.json lists none: nothing can be adapted",
              "add one: dexctl models add, or deploy/setup/all --only model");
  }
  for (const auto& model : observed.models) {
    if (model.weights_sha256().empty()) {
      topic.add(model.name(), kDoubtful, "no hash in models.json: other weights would go unseen",
                "take it off the list and add it again: dexctl models add writes the hash");
    }
    if (!observed.store.ok()) continue;
    const size_t able = workers_for(observed, model.name());
    topic.add(
        model.name(), able > 0 ? kFine : kDoubtful,
        able > 0 ? counted(able, "worker") + " can train it" : "no worker has it: jobs on it wait",
        "start a worker whose models.json lists it");
  }
}

void check_gpu(const Observed& observed, v1::Health& health) {
  if (!observed.store.ok() || observed.workers.empty()) return;
  std::map<std::string, size_t> kinds;
  for (const auto& worker : observed.workers) {
    iv1::RegisterRequest registered;
    if (!registered.ParseFromString(worker.info)) continue;
    for (const auto& device : registered.devices()) kinds[device.kind()] += is_gpu(device) ? 1 : 0;
  }
  std::vector<std::string> found;
  for (const auto& [kind, count] : kinds) {
    if (count > 0) found.push_back(std::to_string(count) + " × " + kind);
  }
  Topic(health, "workers")
      .add("GPUs", kFine, found.empty() ? "none: all work is done by CPUs" : listed_names(found));
}

void promise(v1::Health& health, const std::string& text, bool kept, const std::string& reason) {
  auto& entry = *health.add_promises();
  entry.set_text(text);
  entry.set_kept(kept);
  entry.set_reason(reason);
}

// jobs.md §13 as this setting has it.
void promise_durability(const Observed& observed, v1::Health& health) {
  const bool there = observed.store.ok();
  const bool keeps = there && keeps_what_it_acknowledges(*observed.store);
  promise(health, "A job that was acknowledged survives the end of every process", keeps,
          keeps   ? "its record is written before the answer"
          : there ? "the store does not keep all that it acknowledges: see above"
                  : "the store does not answer, so nothing new is acknowledged");
  const bool synced = keeps && observed.store->fsync_in_rewrite != "yes";
  promise(health, "… and the loss of power", synced,
          synced ? "every write is synced, if the disk does what fsync asks"
                 : "not every write is synced before the answer");
  promise(health, "… and the loss of the store's disk", false,
          "there is one copy; a backup is a copy of the append-only directory");
}

void promise_work(const Observed& observed, v1::Health& health) {
  const bool there = observed.store.ok();
  promise(health, "Running jobs and inference go on while store or scheduler are away", true,
          there ? "workers need neither to compute; they report when both are back"
                : "that is what they do just now");
  promise(health, "Of a job's attempts at most one is published", true,
          "who has lost its lease is refused, whatever the clocks say");
  if (!there) return;
  std::map<std::string, int> by_pool, by_base;
  for (const auto& worker : observed.workers) {
    if (worker.state != "up") continue;
    for (const std::string& pool : worker.pools) ++by_pool[pool];
    iv1::HeartbeatRequest live;
    if (!live.ParseFromString(worker.live)) continue;
    for (const auto& engine : live.engines()) ++by_base[engine.base()];
  }
  const auto alone = [](const std::map<std::string, int>& counts) {
    std::vector<std::string> names;
    for (const auto& [name, count] : counts) {
      if (count == 1) names.push_back(name);
    }
    return names;
  };
  const auto pools = alone(by_pool), bases = alone(by_base);
  promise(health, "A dead worker's job goes on at once on another one",
          !by_pool.empty() && pools.empty(),
          by_pool.empty() ? "there is no worker"
          : pools.empty() ? "every pool has two workers or more"
                          : "one worker alone takes from " + listed_names(pools) +
                                "; its job waits until it is back, from its last checkpoint");
  promise(health, "Inference outlives the loss of a worker", !by_base.empty() && bases.empty(),
          by_base.empty() ? "no worker serves a model"
          : bases.empty() ? "every served model is on two workers or more"
                          : "one worker alone serves " + listed_names(bases));
}

}  // namespace

v1::Health diagnose(const Observed& observed) {
  v1::Health health;
  check_store(observed, health);
  check_disk(observed, health);
  check_clock(observed, health);
  check_workers(observed, health);
  check_gpu(observed, health);
  check_bases(observed, health);
  promise_durability(observed, health);
  promise_work(observed, health);
  return health;
}

Observed Diagnosis::look() {
  Observed seen;
  seen.version = std::string(base::version());
  seen.models = parts_.models.models();
  seen.free_bytes = base::free_bytes(parts_.layout.root());
  const auto ratio = base::free_ratio(parts_.layout.root());
  if (ratio.ok()) seen.free_ratio = *ratio;
  seen.store = store::store_facts(parts_.store);
  seen.now_ms = parts_.clock.now_ms();
  if (!seen.store.ok()) return seen;  // what follows would only wait once more
  std::error_code error;
  if (std::filesystem::exists(seen.store->directory, error)) {
    const auto stores = base::free_ratio(seen.store->directory);
    if (stores.ok()) seen.store_free_ratio = *stores;
  }
  auto workers = parts_.workers.workers();
  if (workers.ok()) seen.workers = std::move(workers).value();
  auto stats = parts_.store.stats();
  if (stats.ok()) seen.pools = std::move(stats->pools);
  return seen;
}

base::Result<v1::Health> Diagnosis::health(const auth::Principal& who) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  v1::Health health = diagnose(look());
  health.set_version(std::string(base::version()));
  health.set_commit(std::string(base::commit()));
  *health.mutable_server_time() = timestamp(parts_.clock.now_ms());
  return health;
}

}  // namespace dex::server
