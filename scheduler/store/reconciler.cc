#include "scheduler/store/reconciler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace dex::store {

namespace {

constexpr size_t kReconcilePage = 100;  // ids that reconcile.lua takes at a time

}  // namespace

base::Result<Reconciler::Part> Reconciler::step() {
  auto fixes = look();
  if (!fixes.ok()) {
    restart();
    return fixes.status();
  }
  if (*fixes > 0) spdlog::error("store: reconcile repaired {} set members", *fixes);
  const bool done = begun_ && keys_seen_ && sets_.empty();
  if (done) restart();
  return Part{*fixes, done};
}

void Reconciler::restart() {
  begun_ = keys_seen_ = false;
  sets_.clear();
  held_.clear();
  at_ = "0";
}

// Sets first: what counts a tenant's jobs is right by the time its rings are made of it.
base::Result<int64_t> Reconciler::look() {
  if (!begun_) {
    DEX_RETURN_IF_ERROR(list_sets());
    begun_ = true;
    return int64_t{0};
  }
  return sets_.empty() ? look_at_keys() : look_at_set();
}

base::Status Reconciler::list_sets() {
  DEX_ASSIGN_OR_RETURN(const Reply pools, store_.command({"SMEMBERS", store_.key("pools")}));
  DEX_ASSIGN_OR_RETURN(const Reply tenants, store_.command({"SMEMBERS", store_.key("tenants")}));
  sets_ = {"delayed", "lease", "deadline", "paused", "done", "dead"};
  for (const Reply& pool : pools.elements) {
    sets_.push_back("ready:" + pool.text);
    sets_.push_back("inflight:" + pool.text);
    for (const Reply& tenant : tenants.elements)
      sets_.push_back("rq:" + pool.text + ":" + tenant.text);
  }
  for (const Reply& tenant : tenants.elements) {
    for (const char* family : {"twait:", "trun:", "tjobs:"}) sets_.push_back(family + tenant.text);
  }
  return {};
}

base::Result<int64_t> Reconciler::look_at_set() {
  const std::string set = sets_.front();
  DEX_ASSIGN_OR_RETURN(const Reply page,
                       store_.command({"ZSCAN", store_.key(set), at_, "COUNT", "50"}));
  std::vector<std::string> ids;
  for (size_t i = 0; i < page.at(1).elements.size(); i += 2) ids.push_back(page.at(1).str(i));
  DEX_ASSIGN_OR_RETURN(const int64_t fixes,
                       fix({"set", std::to_string(store_.times().lease_ms), set}, ids));
  at_ = page.str(0);
  if (at_ == "0") sets_.pop_front();
  return fixes;
}

// Jobs are looked at at once. Sets of who uses a file or an adapter are known by their keys only,
// and come when the keys are through.
base::Result<int64_t> Reconciler::look_at_keys() {
  const std::string all = store_.key("");
  DEX_ASSIGN_OR_RETURN(const Reply page,
                       store_.command({"SCAN", at_, "MATCH", all + "*", "COUNT", "300"}));
  std::vector<std::string> jobs;
  for (const Reply& key : page.at(1).elements) {
    const std::string name = key.text.substr(all.size());
    if (name.starts_with("job:")) jobs.push_back(name.substr(4));
    if (name.starts_with("fileuse:") || name.starts_with("adapteruse:")) held_.push_back(name);
  }
  DEX_ASSIGN_OR_RETURN(const int64_t fixes,
                       fix({"jobs", std::to_string(store_.times().lease_ms)}, jobs));
  at_ = page.str(0);
  if (at_ == "0") {
    keys_seen_ = true;
    sets_.swap(held_);
  }
  return fixes;
}

// ZSCAN may answer a small set whole, whatever COUNT says; the script takes 100 at a time.
base::Result<int64_t> Reconciler::fix(const std::vector<std::string>& head,
                                      const std::vector<std::string>& ids) {
  int64_t fixes = 0;
  for (size_t first = 0; first < ids.size(); first += kReconcilePage) {
    const size_t end = std::min(first + kReconcilePage, ids.size());
    std::vector<std::string> args = head;
    args.insert(args.end(), ids.begin() + static_cast<int64_t>(first),
                ids.begin() + static_cast<int64_t>(end));
    DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("reconcile", std::move(args)));
    if (reply.str(0) != "OK") return unexpected("reconcile", reply);
    fixes += reply.num(1);
  }
  return fixes;
}

}  // namespace dex::store
