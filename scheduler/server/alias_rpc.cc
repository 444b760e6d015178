// AdapterRpc's calls about aliases.
#include <chrono>
#include <memory>
#include <utility>

#include "scheduler/server/adapter_rpc.h"
#include "scheduler/server/rpc_parts.h"
#include "services/rpc/unary.h"

namespace dex::server {

namespace {

using rpc::Call;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Pending = rpc::Pending<v1::AdapterAlias>;

// After the move: gateways that do not take their routes meanwhile hold the answer up no longer.
constexpr milliseconds kToldWithin{2000};

// What a set waits for, one look at a time: first the workers, then the gateways.
class AliasSet {
 public:
  struct Parts {
    Adapters& adapters;
    Aliases& aliases;
    const Routes& routes;
  };
  AliasSet(const Parts& parts, std::shared_ptr<Pending> pending, auth::Principal who,
           store::AliasRepository::Change change, steady_clock::time_point until)
      : parts_(parts),
        pending_(std::move(pending)),
        who_(std::move(who)),
        change_(std::move(change)),
        until_(until) {}

  bool look() {
    if (!pending_->alive()) return true;  // the alias stays where it was, or has moved already
    if (!moved_ && !move()) return false;
    if (!moved_) return true;
    if (!parts_.routes.told(moved_->revision) && steady_clock::now() < until_) return false;
    if (moved_->replayed) pending_->call().add_trailer("dex-replayed", "true");
    pending_->answer(std::move(moved_->alias));
    return true;
  }

 private:
  // False: the workers are not there yet. True without moved_: it has been answered.
  bool move() {
    const auto loading = parts_.adapters.loading(who_, change_.adapter, change_.gates_overridden);
    const bool store_away = !loading.ok() && loading.status().code() == base::Code::kUnavailable;
    if (!loading.ok() && !store_away) return refuse(loading.status());
    if (loading.ok() && !loading->failed.ok()) return refuse(loading->failed);
    if (loading.ok() && loading->done) {
      auto moved = parts_.aliases.set(who_, change_);
      if (!moved.ok()) return refuse(moved.status());
      moved_ = std::move(moved).value();
      until_ = steady_clock::now() + kToldWithin;
      return true;
    }
    if (steady_clock::now() < until_) return false;
    return refuse(store_away ? loading.status()
                             : base::unavailable("ADAPTER_LOADING",
                                                 change_.adapter + ": " + loading->missing +
                                                     "; the alias stays as it was"));
  }
  bool refuse(const base::Status& why) {
    pending_->answer(why);
    return true;
  }

  const Parts parts_;
  const std::shared_ptr<Pending> pending_;
  const auth::Principal who_;
  const store::AliasRepository::Change change_;
  steady_clock::time_point until_;
  std::optional<Aliases::Set> moved_;
};

}  // namespace

grpc::ServerUnaryReactor* AdapterRpc::SetAdapterAlias(Context* ctx,
                                                      const v1::SetAdapterAliasRequest* in,
                                                      v1::AdapterAlias* out) {
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::SetAdapterAliasRequest& request) {
    const double wait = request.has_wait_seconds() ? request.wait_seconds() : kLoadSeconds;
    if (!(wait >= 0 && wait <= kMostLoadSeconds)) {
      return pending->answer(
          base::bad_field("VALUE_OUT_OF_RANGE", "wait_seconds", "must be between 0 and 600"));
    }
    const auto who = pending->call().principal();
    auto begun = aliases_.begin(who, request);
    if (!begun.ok()) return pending->answer(begun.status());
    if (begun->replayed) pending->call().add_trailer("dex-replayed", "true");
    if (begun->over) return pending->answer(std::move(begun->alias));
    const auto until = steady_clock::now() + milliseconds(static_cast<int64_t>(wait * 1000));
    const auto set =
        std::make_shared<AliasSet>(AliasSet::Parts{adapters_, aliases_, routes_},
                                   std::move(pending), who, std::move(begun->change), until);
    waiters_.add([set] { return set->look(); });
  };
  return rpc::run_async<v1::SetAdapterAliasRequest, v1::AdapterAlias>(room_, ctx, in, out, starter,
                                                                      kLongestLoad);
}

grpc::ServerUnaryReactor* AdapterRpc::DeleteAdapterAlias(Context* ctx,
                                                         const v1::DeleteAdapterAliasRequest* in,
                                                         v1::AdapterAlias* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, aliases_.remove(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdapterRpc::ListAdapterAliases(Context* ctx,
                                                         const v1::ListAdapterAliasesRequest* in,
                                                         v1::ListAdapterAliasesResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return aliases_.list(call.principal(), *in); });
}

}  // namespace dex::server
