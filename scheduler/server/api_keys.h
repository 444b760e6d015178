#pragma once

#include <functional>
#include <string>

#include "dex/internal/v1/routes.pb.h"
#include "dex/v1/admin.pb.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/key_repository.h"
#include "services/auth/principal.h"
#include "services/base/clock.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::server {

// API keys as AdminService has them, without gRPC. Waits for a few round trips of the store.
// Thread-safe. Every call but who_am_i needs the scope `admin`; keys of other tenants are the
// operator's alone, to other admins they are not there (RESOURCE_NOT_FOUND). Nobody can give a
// scope that they lack.
class ApiKeys {
 public:
  struct Parts {  // all outlive this object
    store::KeyRepository& keys;
    base::UlidGenerator& ids;
    base::RandomSource& random;  // of secrets
    const base::Clock& clock;
  };
  // `changed` is called after each change: gateways must hear of it.
  ApiKeys(const Parts& parts, std::function<void()> changed)
      : parts_(parts), changed_(std::move(changed)) {}

  static v1::Caller who_am_i(const auth::Principal& who);

  // The reply of the first call alone has the secret: it is stored nowhere.
  base::Result<Answer<v1::ApiKey>> create(const auth::Principal& who,
                                          const v1::CreateApiKeyRequest& request);
  base::Result<v1::ListApiKeysResponse> list(const auth::Principal& who,
                                             const v1::ListApiKeysRequest& request);
  // The operator may revoke any tenant's. Takes also the key that the call came with.
  base::Result<Answer<v1::ApiKey>> revoke(const auth::Principal& who,
                                          const v1::RevokeApiKeyRequest& request);

  // What gateways have seen used. A moment of the future counts as now.
  base::Status report(const internal::v1::ReportUseRequest& request);

  // The operator's first key, with every scope: `secret` is what DIR/admin.key holds, and only its
  // hash is stored. There once, however often it is asked for. INVALID_FIELD when it is not in the
  // form of a key, UNAUTHENTICATED `API_KEY_INVALID` when it was revoked.
  base::Status ensure_admin(const std::string& secret);

 private:
  const Parts parts_;
  const std::function<void()> changed_;
};

}  // namespace dex::server
