#pragma once

#include <functional>
#include <string>

#include "dex/v1/adapters.pb.h"
#include "scheduler/server/adapters.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/alias_repository.h"
#include "scheduler/store/store.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// Names of adapters (AdapterService), without gRPC. Waits for a few round trips of the store.
// Thread-safe.
class Aliases {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::AliasRepository& aliases;
    store::AdapterRepository& adapters;
    Adapters& adapter_logic;
    const ModelCatalog& models;
    base::UlidGenerator& ids;
  };
  // `changed` is called when gateways should hear of a change.
  Aliases(const Parts& parts, std::function<void()> changed)
      : parts_(parts), changed_(std::move(changed)) {}

  // A set in two steps, since in between workers load. begin() refuses what will never be set and
  // asks every worker to hold the adapter; Adapters::loading() of `change.adapter` tells how far
  // they are; then set() moves the alias in one step of the store, which is one revision of the
  // routes.
  struct Begun {
    store::AliasRepository::Change change;
    // The answer is there already: of a repeat, or of validate_only.
    bool over = false, replayed = false;
    v1::AdapterAlias alias;
  };
  base::Result<Begun> begin(const auth::Principal& who, const v1::SetAdapterAliasRequest& request);
  struct Set {
    v1::AdapterAlias alias;
    bool replayed = false;
    int64_t revision = 0;  // of the routes that have it
  };
  base::Result<Set> set(const auth::Principal& who, const store::AliasRepository::Change& change);

  base::Result<Answer<v1::AdapterAlias>> remove(const auth::Principal& who,
                                                const v1::DeleteAdapterAliasRequest& request);
  base::Result<v1::ListAdapterAliasesResponse> list(const auth::Principal& who,
                                                    const v1::ListAdapterAliasesRequest& request);

 private:
  base::Status check_name(const std::string& alias) const;
  // What is wrong with the alias as it is now, for etag and create_only.
  base::Status check_now(const std::string& tenant, const v1::SetAdapterAliasRequest& request);
  // With what its adapter is.
  base::Result<v1::AdapterAlias> whole(const store::AliasRecord& record);

  Parts parts_;
  std::function<void()> changed_;
};

}  // namespace dex::server
