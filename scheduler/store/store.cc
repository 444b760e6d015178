#include "scheduler/store/store.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

#include "scheduler/store/alphabet.h"
#include "scheduler/store/reconciler.h"

namespace dex::store {

namespace {

constexpr int64_t kSchema = 1;
constexpr int64_t kSweepLimit = 50;
constexpr int kSweepRounds = 200;    // a sweep that never ends would hold up everything else
constexpr int64_t kOldestRedis = 7;  // major version: flags of scripts, XTRIM MINID, ZADD GT

base::Status check_version(const std::string& version) {
  if (std::atoll(version.c_str()) >= kOldestRedis) return {};  // "7.0.15": stops at the dot
  return base::failed_precondition("STORE_TOO_OLD",
                                   "Redis " + (version.empty() ? "of unknown version" : version) +
                                       " is too old: 7.0 or newer is needed.");
}

Redis::Options with_hello(Redis::Options options, std::function<base::Status(Connection&)> hello) {
  options.on_connect = std::move(hello);
  return options;
}

}  // namespace

base::Status unexpected(std::string_view script, const Reply& reply) {
  spdlog::error("redis: {} answered {} {}", script, reply.str(0), reply.str(1));
  return base::internal("The store answered '" + reply.str(0) + "' to '" + std::string(script) +
                        "'.");
}

base::Status idempotency_conflict(const std::string& made) {
  return {
      base::Code::kAlreadyExists, "IDEMPOTENCY_CONFLICT",
      "This request_id was used within 24 hours for another request; it was about " + made + "."};
}

Store::Store(Options options)
    : options_(std::move(options)),
      prefix_("dex:{" + options_.shard + "}:"),
      redis_(with_hello(options_.redis,
                        [this](Connection& connection) { return hello(connection); })) {}

std::string Store::clock() const {
  return options_.clock_ms ? std::to_string(options_.clock_ms()) : "0";
}

base::Result<Reply> Store::run(std::string_view name, std::vector<std::string> args) {
  args.insert(args.begin(), clock());
  return redis_.run(script(name), prefix_, args);
}

const Script& Store::script(std::string_view name) const {
  return find_script(name, options_.scripts != nullptr ? *options_.scripts : all_scripts());
}

base::Status Store::hello(Connection& connection) {
  const Answer info = connection.call({"INFO", "server"});
  if (info.ok) DEX_RETURN_IF_ERROR(check_version(info.reply.info_field("redis_version")));
  // EVAL, not EVALSHA: this call must not depend on what a former life of Redis had loaded.
  const Answer answer =
      info.ok ? connection.call({"EVAL", script("hello").text, "1", prefix_, clock(),
                                 info.reply.info_field("run_id"),
                                 std::to_string(options_.times.settle_ms), std::to_string(kSchema)})
              : info;
  if (!answer.ok) {
    const bool forbidden = answer.error == ErrorClass::kForbidden;
    return forbidden
               ? base::failed_precondition("STORE_REFUSED", "Redis refused: " + answer.message)
               : base::unavailable("STORE_UNAVAILABLE", answer.message);
  }
  if (answer.reply.str(0) == "SCHEMA") {
    return base::failed_precondition(
        "STORE_TOO_NEW", "The store has schema " + answer.reply.str(1) + ", this program knows " +
                             std::to_string(kSchema) + ": start a newer scheduler.");
  }
  if (answer.reply.str(0) == "NEW") {
    spdlog::info("redis: new server; leases rest for {} ms", options_.times.settle_ms);
  }
  return {};
}

base::Status Store::preflight() {
  // Its first call connects, and so logs in and says hello(): version and schema.
  const auto wrong = durability();
  DEX_RETURN_IF_ERROR(wrong.status());
  if (wrong->empty()) return {};
  return base::failed_precondition("STORE_NOT_DURABLE",
                                   "Redis would not keep what it acknowledges: " + *wrong);
}

base::Result<std::string> Store::durability() {
  DEX_ASSIGN_OR_RETURN(const Reply persistence, command({"INFO", "persistence"}));
  DEX_ASSIGN_OR_RETURN(const Reply memory, command({"INFO", "memory"}));
  DEX_ASSIGN_OR_RETURN(const Reply fsync, command({"CONFIG", "GET", "appendfsync"}));
  std::string wrong;
  const auto demand = [&](const std::string& what, const std::string& value,
                          const std::string& right) {
    if (value == right) return;
    wrong += (wrong.empty() ? "" : "; ") + what + " is '" + value + "', must be '" + right + "'";
  };
  demand("aof_enabled", persistence.info_field("aof_enabled"), "1");
  demand("aof_last_write_status", persistence.info_field("aof_last_write_status"), "ok");
  demand("maxmemory-policy", memory.info_field("maxmemory_policy"), "noeviction");
  demand("appendfsync", fsync.str(1), "always");
  return wrong;
}

base::Result<double> Store::memory_ratio() {
  DEX_ASSIGN_OR_RETURN(const Reply memory, command({"INFO", "memory"}));
  const double used = std::atof(memory.info_field("used_memory").c_str());
  const double most = std::atof(memory.info_field("maxmemory").c_str());
  return most > 0 ? used / most : 0.0;
}

base::Result<std::vector<std::string>> Store::made_by(const std::string& tenant,
                                                      const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_ASSIGN_OR_RETURN(const Reply reply, run("known", {tenant, request.id, request.digest}));
  if (reply.str(0) == "CONFLICT") return idempotency_conflict(reply.str(1));
  std::vector<std::string> ids;
  if (reply.str(0) == "NONE") return ids;
  if (reply.str(0) != "DUP") return unexpected("known", reply);
  for (size_t i = 1; i < reply.elements.size(); ++i) ids.push_back(reply.str(i));
  return ids;
}

base::Result<Store::Swept> Store::sweep() {
  const StoreTimes& times = options_.times;
  Swept sum;
  bool more = true;
  for (int round = 0; more && round < kSweepRounds; ++round) {
    DEX_ASSIGN_OR_RETURN(
        const Reply reply,
        run("sweep", {std::to_string(kSweepLimit), std::to_string(times.crash_backoff_ms),
                      std::to_string(times.settle_ms), std::to_string(times.gap_ms),
                      std::to_string(times.lease_ms), std::to_string(times.worker_timeout_ms)}));
    if (reply.str(0) != "OK") return unexpected("sweep", reply);
    more = false;
    for (size_t i = 1; i <= 6; ++i) more = more || reply.num(i) == kSweepLimit;
    sum.pulled_back += reply.num(1);
    sum.deadlines += reply.num(2);
    sum.leases += reply.num(3);
    sum.delayed += reply.num(4);
    sum.uncapped += reply.num(5);
    sum.workers_lost += reply.num(6);
    sum.settling = reply.num(7) == 1;
    sum.news += reply.num(8);
    for (const Reply& row : reply.at(9).elements) {
      sum.ends.push_back({row.str(0), row.str(1), row.str(2), row.str(3), row.num(4) == 1});
    }
    sum.orphans += reply.num(10);
  }
  if (sum.orphans > 0) {
    spdlog::error("store: {} set members disagreed with their jobs and were removed", sum.orphans);
  }
  return sum;
}

base::Result<int64_t> Store::reconcile() {
  Reconciler reconciler(*this);
  int64_t fixes = 0;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const Reconciler::Part part, reconciler.step());
    fixes += part.fixes;
    if (part.done) return fixes;
  }
}

base::Result<std::vector<Reply>> Store::list(const std::string& kind, const std::string& tenant,
                                             Cursor cursor, int count) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  std::vector<Reply> rows;
  while (true) {
    const std::string before = cursor.before_ms < 0 ? "" : std::to_string(cursor.before_ms);
    const int left = count - static_cast<int>(rows.size());
    DEX_ASSIGN_OR_RETURN(
        Reply page, run("list", {kind, tenant, before, cursor.before_id, std::to_string(left)}));
    const bool more = page.str(0) == "MORE" && page.elements.size() > 1;
    if (!more && page.str(0) != "OK") return unexpected("list", page);
    for (size_t i = 1; i < page.elements.size(); ++i) rows.push_back(std::move(page.elements[i]));
    if (!more) return rows;
    cursor = {rows.back().num(1), rows.back().str(0)};
  }
}

base::Result<Store::Stats> Store::stats() {
  DEX_ASSIGN_OR_RETURN(const Reply reply, run("stats", {}));
  if (reply.str(0) != "OK") return unexpected("stats", reply);
  Stats stats;
  for (const Reply& row : reply.at(1).elements)
    stats.pools.push_back({row.str(0), std::atof(row.str(1).c_str())});
  for (const Reply& row : reply.at(2).elements) {
    stats.jobs.push_back({row.num(0), row.str(1), row.str(2), row.str(3), row.str(4), row.str(5)});
  }
  for (const Reply& row : reply.at(3).elements) stats.workers.emplace_back(row.str(0), row.str(1));
  return stats;
}

base::Status Store::set_tenant(const std::string& tenant, double weight, int max_queued,
                               int max_running, double gpu_seconds_a_day) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  auto reply = run("tenant", {tenant, std::to_string(weight), std::to_string(max_queued),
                              std::to_string(max_running), std::to_string(gpu_seconds_a_day)});
  DEX_RETURN_IF_ERROR(reply.status());
  return reply->str(0) == "OK" ? base::Status() : unexpected("tenant", *reply);
}

}  // namespace dex::store
