// API keys: made, listed, revoked at a scheduler, and what each opens at a gateway that asks for
// them (api.md §1, authentication and tenancy).
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "dex/v1/inference.grpc.pb.h"
#include "scheduler/server/api_keys.h"
#include "services/auth/api_key.h"
#include "services/auth/authenticator.h"
#include "services/base/clock.h"
#include "services/base/ids.h"
#include "services/gateway/gateway.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/http_client.h"

namespace dex::server {
namespace {

using auth::Scope;
using base::Code;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ApiKeysTest : public SurfaceTest {
 protected:
  static v1::CreateApiKeyRequest wish(const std::string& name,
                                      std::initializer_list<const char*> scopes,
                                      const std::string& tenant = "") {
    v1::CreateApiKeyRequest request;
    request.set_name(name);
    request.set_tenant(tenant);
    for (const char* scope : scopes) request.add_scopes(scope);
    return request;
  }
  base::Result<v1::ApiKey> make(const v1::CreateApiKeyRequest& request, bool* replayed = nullptr) {
    return call(*admin_, &AdminStub::CreateApiKey, request, 20'000, replayed);
  }
  base::Result<v1::ApiKey> revoke(const std::string& id) {
    v1::RevokeApiKeyRequest request;
    request.set_id(id);
    return call(*admin_, &AdminStub::RevokeApiKey, request);
  }
  std::vector<v1::ApiKey> listed(const std::string& tenant = "") {
    v1::ListApiKeysRequest request;
    request.set_tenant(tenant);
    const auto reply = call(*admin_, &AdminStub::ListApiKeys, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return {reply->keys().begin(), reply->keys().end()};
  }
  // Every byte that the store holds, as one text.
  std::string everything_stored() {
    std::string all;
    for (const auto& name : redis_.call({"KEYS", "*"}).elements) {
      all += name.text + "\n";
      const std::string type = redis_.call({"TYPE", name.text}).text;
      if (type == "string") all += redis_.call({"GET", name.text}).text + "\n";
      if (type != "hash") continue;
      for (const auto& part : redis_.call({"HGETALL", name.text}).elements) all += part.text + "\n";
    }
    return all;
  }
};

TEST_F(ApiKeysTest, TheSecretIsInTheFirstAnswerAndNowhereElse) {
  auto request = wish("ci", {"jobs:read", "infer"});
  request.set_request_id("once");
  const auto made = make(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(auth::is_api_key(made->secret()));
  EXPECT_TRUE(made->secret().starts_with(made->prefix()));
  EXPECT_THAT(made->scopes(), ElementsAre("jobs:read", "infer"));
  EXPECT_EQ(made->tenant(), "default");
  EXPECT_EQ(made->state(), v1::ApiKey::STATE_ACTIVE);
  EXPECT_FALSE(made->has_expire_time());

  bool replayed = false;
  const auto again = make(request, &replayed);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->id(), made->id());
  EXPECT_EQ(again->secret(), "");
  const auto keys = listed();
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].id(), made->id());
  EXPECT_EQ(keys[0].secret(), "");

  const std::string stored = everything_stored();
  EXPECT_THAT(stored, HasSubstr(auth::api_key_sha256(made->secret())));
  EXPECT_THAT(stored, Not(HasSubstr(made->secret())));
  EXPECT_THAT(stored, Not(HasSubstr(made->secret().substr(12))));

  request.set_name("other");
  EXPECT_EQ(make(request).status().reason(), "IDEMPOTENCY_CONFLICT");
}

TEST_F(ApiKeysTest, WhatIsNotAKeyIsRefusedByItsField) {
  EXPECT_EQ(make(wish("", {"infer"})).status().reason(), "MISSING_FIELD");
  EXPECT_EQ(make(wish("x", {})).status().reason(), "MISSING_FIELD");
  EXPECT_EQ(make(wish(std::string(65, 'x'), {"infer"})).status().reason(), "INVALID_FIELD");
  EXPECT_EQ(make(wish("two\nlines", {"infer"})).status().reason(), "INVALID_FIELD");
  const auto unknown = make(wish("x", {"everything"})).status();
  EXPECT_EQ(unknown.reason(), "INVALID_FIELD");
  EXPECT_THAT(unknown.message(), HasSubstr("'everything' is none of files:read"));
  EXPECT_EQ(make(wish("x", {"infer"}, "Not A Tenant")).status().reason(), "INVALID_FIELD");
  auto past = wish("x", {"infer"});
  past.mutable_expire_time()->set_seconds(1);
  EXPECT_EQ(make(past).status().reason(), "VALUE_OUT_OF_RANGE");
  auto dry = wish("x", {"infer"});
  dry.set_validate_only(true);
  const auto checked = make(dry);
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->id() + checked->secret(), "");
  EXPECT_THAT(listed(), IsEmpty());
  EXPECT_EQ(revoke("key-nobodys").status().code(), Code::kNotFound);
}

TEST_F(ApiKeysTest, AListIsNewestFirstInPagesAndKnowsWhatEnded) {
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(make(wish("k", {"infer"}))->id());
  ASSERT_TRUE(revoke(ids[1]).ok());
  ASSERT_TRUE(revoke(ids[1]).ok()) << "revoking again changes nothing";
  std::vector<std::string> seen;
  v1::ListApiKeysRequest request;
  request.set_page_size(2);
  do {
    const auto page = call(*admin_, &AdminStub::ListApiKeys, request);
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    for (const auto& key : page->keys()) {
      seen.push_back(key.id());
      EXPECT_EQ(key.state() == v1::ApiKey::STATE_REVOKED, key.id() == ids[1]);
      EXPECT_EQ(key.has_revoke_time(), key.id() == ids[1]);
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(seen, ids);
}

// Called without gRPC, by whoever the test says.
TEST_F(ApiKeysTest, NobodyGivesWhatTheyLackNorReachesAnotherTenant) {
  store::Store::Options options;
  options.redis.address = redis_.address();
  store::Store store(options);
  store::KeyRepository repository(store);
  base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  ApiKeys keys({repository, ids, random, clock}, nullptr);
  const auto caller = [](const std::string& tenant, std::initializer_list<Scope> scopes) {
    return auth::Authenticator(tenant, scopes).authenticate({}).value();
  };
  const auto user = caller("team-a", {Scope::kInfer}),
             admin = caller("team-a", {Scope::kAdmin, Scope::kInfer}),
             other = caller("team-b", {Scope::kAdmin, Scope::kInfer}),
             operator_ = caller("default", {Scope::kAdmin, Scope::kInfer});

  EXPECT_EQ(keys.create(user, wish("x", {"infer"})).status().reason(), "SCOPE_MISSING");
  EXPECT_EQ(keys.list(user, {}).status().reason(), "SCOPE_MISSING");
  EXPECT_EQ(keys.create(admin, wish("x", {"jobs:write"})).status().reason(), "SCOPE_MISSING");
  EXPECT_EQ(keys.create(admin, wish("x", {"infer"}, "team-b")).status().code(), Code::kNotFound);
  const auto hers = keys.create(admin, wish("x", {"infer"}));
  ASSERT_TRUE(hers.ok()) << hers.status().to_string();
  EXPECT_EQ(hers->reply.tenant(), "team-a");

  v1::RevokeApiKeyRequest end;
  end.set_id(hers->reply.id());
  EXPECT_EQ(keys.revoke(user, end).status().reason(), "SCOPE_MISSING");
  const auto hidden = keys.revoke(other, end).status();
  v1::RevokeApiKeyRequest nobodys;
  nobodys.set_id("key-nobodys");
  const auto missing = keys.revoke(other, nobodys).status();
  EXPECT_EQ(hidden.code(), Code::kNotFound);
  EXPECT_EQ(hidden.reason(), missing.reason());
  EXPECT_EQ(keys.list(other, {})->keys_size(), 0);
  v1::ListApiKeysRequest of_a;
  of_a.set_tenant("team-a");
  EXPECT_EQ(keys.list(other, of_a).status().code(), Code::kNotFound);
  EXPECT_EQ(keys.list(operator_, of_a)->keys_size(), 1);
  EXPECT_EQ(keys.create(operator_, wish("x", {"infer"}, "team-c"))->reply.tenant(), "team-c");
  EXPECT_TRUE(keys.revoke(operator_, end).ok());
}

// ---- at the door ----

class KeyDoorTest : public ApiKeysTest {
 protected:
  void open_door(uint32_t requests_per_minute = 0) {
    gateway::Gateway::Options options;
    options.scheduler = scheduler_->grpc_address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    options.route_patience = std::chrono::milliseconds(0);
    options.authenticate = true;
    options.requests_per_minute = requests_per_minute;
    options.use_period = std::chrono::milliseconds(50);
    auto started = gateway::Gateway::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    gateway_ = std::move(started).value();
    door_ = rpc::channel(gateway_->grpc_address());
    http_port_ = support::port_of(gateway_->http_address());
    ASSERT_TRUE(support::eventually([this] {
      return support::http_get(http_port_, "/readyz").starts_with("HTTP/1.1 200");
    })) << "the gateway has no routes";
  }
  template <typename Service, typename Request, typename Reply>
  base::Result<Reply> ask(grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Reply*),
                          const Request& request, const std::string& secret) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(20));
    if (!secret.empty()) context.AddMetadata("authorization", "Bearer " + secret);
    Reply reply;
    const auto stub = Service::NewStub(door_);
    const auto status = ((*stub).*method)(&context, request, &reply);
    if (!status.ok()) return rpc::from_grpc(status);
    return reply;
  }
  base::Result<v1::Caller> who(const std::string& secret) {
    return ask<v1::AdminService>(&AdminStub::WhoAmI, v1::WhoAmIRequest(), secret);
  }
  // Once the gateway has heard of it.
  bool is_known(const std::string& secret) {
    return support::eventually([&] { return who(secret).ok(); });
  }

  std::unique_ptr<gateway::Gateway> gateway_;
  std::shared_ptr<grpc::Channel> door_;
  int http_port_ = 0;
};

TEST_F(KeyDoorTest, AKeyOpensWhatItsScopesAndItsTenantAllow) {
  open_door();
  EXPECT_EQ(who("").status().reason(), "API_KEY_MISSING");
  EXPECT_EQ(who("none").status().reason(), "API_KEY_INVALID");
  const auto a = make(wish("a", {"files:read", "jobs:read", "admin"}, "team-a"));
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  ASSERT_TRUE(is_known(a->secret()));
  const auto caller = who(a->secret());
  EXPECT_EQ(caller->tenant(), "team-a");
  EXPECT_EQ(caller->key(), a->id());
  EXPECT_THAT(caller->scopes(), ElementsAre("files:read", "jobs:read", "admin"));
  EXPECT_FALSE(caller->operator_());

  // Its tenant: what is another's is not there.
  const std::string file = upload_good();  // at the scheduler itself, as `default`
  v1::GetFileRequest get;
  get.set_id(file);
  EXPECT_EQ(ask<v1::FileService>(&FileStub::GetFile, get, a->secret()).status().code(),
            Code::kNotFound);
  const auto d = make(wish("d", {"files:read"}));
  ASSERT_TRUE(is_known(d->secret()));
  EXPECT_TRUE(ask<v1::FileService>(&FileStub::GetFile, get, d->secret()).ok());

  // Its scopes, of the scheduler's methods and of the gateway's own.
  v1::DeleteFileRequest remove;
  remove.set_id(file);
  const auto refused = ask<v1::FileService>(&FileStub::DeleteFile, remove, d->secret()).status();
  EXPECT_EQ(refused.reason(), "SCOPE_MISSING");
  EXPECT_THAT(refused.message(), HasSubstr("files:write"));
  v1::GenerateRequest generate;
  generate.set_model("small-model");
  generate.set_prompt("x");
  EXPECT_THAT(
      ask<v1::InferenceService>(&v1::InferenceService::Stub::Generate, generate, d->secret())
          .status()
          .message(),
      HasSubstr("infer"));
  const auto i = make(wish("i", {"infer"}));
  ASSERT_TRUE(is_known(i->secret()));
  EXPECT_EQ(ask<v1::InferenceService>(&v1::InferenceService::Stub::Generate, generate, i->secret())
                .status()
                .reason(),
            "NO_WORKER");
  // An admin of team-a is no operator.
  v1::ListApiKeysRequest list;
  EXPECT_EQ(ask<v1::AdminService>(&AdminStub::ListApiKeys, list, a->secret())->keys_size(), 1);
  list.set_tenant("default");
  EXPECT_EQ(ask<v1::AdminService>(&AdminStub::ListApiKeys, list, a->secret()).status().code(),
            Code::kNotFound);
}

TEST_F(KeyDoorTest, HttpAsksForTheSameKeys) {
  open_door();
  const auto made = make(wish("a", {"files:read"}));
  ASSERT_TRUE(is_known(made->secret()));
  EXPECT_THAT(support::http_get(http_port_, "/v1/files"),
              testing::AllOf(HasSubstr("HTTP/1.1 401"), HasSubstr("invalid_api_key")));
  support::RawConnection known(http_port_);
  known.send(
      "GET /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " +
      made->secret() + "\r\n\r\n");
  EXPECT_THAT(known.read_all(), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(support::http_get(http_port_, "/healthz"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(support::http_get(http_port_, "/metrics"), HasSubstr("HTTP/1.1 401"));
}

TEST_F(KeyDoorTest, UseIsNotedAndRevokingEndsIt) {
  open_door();
  const auto made = make(wish("a", {"admin"}));
  ASSERT_FALSE(listed()[0].has_last_used_time());
  ASSERT_TRUE(is_known(made->secret()));
  EXPECT_TRUE(support::eventually([this] { return listed()[0].has_last_used_time(); }));
  ASSERT_TRUE(revoke(made->id()).ok());
  EXPECT_TRUE(support::eventually(
      [&] { return who(made->secret()).status().reason() == "API_KEY_INVALID"; }));
}

TEST_F(KeyDoorTest, ATenantThatAsksTooMuchWaitsAlone) {
  open_door(/*requests_per_minute=*/1000);
  const auto a = make(wish("a", {"admin"}, "team-a")), b = make(wish("b", {"admin"}, "team-b"));
  ASSERT_TRUE(is_known(a->secret()));
  ASSERT_TRUE(is_known(b->secret()));
  base::Status refused;
  for (int i = 0; i < 20'000 && refused.ok(); ++i) refused = who(a->secret()).status();
  EXPECT_EQ(refused.reason(), "RATE_LIMITED");
  EXPECT_TRUE(who(b->secret()).ok());
}

TEST_F(KeyDoorTest, TheOperatorsKeyIsThereFromTheFirstRoutesOn) {
  base::SystemRandom random;
  SchedulerOptions with_key = options();
  with_key.admin_key = auth::make_api_key(random);
  scheduler_.reset();
  scheduler_ = start(with_key);
  reconnect();
  open_door();
  const auto caller = who(with_key.admin_key);
  ASSERT_TRUE(caller.ok()) << caller.status().to_string();
  EXPECT_TRUE(caller->operator_());
  EXPECT_EQ(listed().size(), 1U);
  scheduler_.reset();
  scheduler_ = start(with_key);  // once more, on the same store
  reconnect();
  EXPECT_EQ(listed().size(), 1U);
}

// P19: what is known works, what is unknown is refused, and an expiry needs nobody.
TEST_F(KeyDoorTest, KnownKeysWorkAndUnknownOnesAreRefusedWithoutTheScheduler) {
  open_door();
  const auto made = make(wish("a", {"infer"}));
  ASSERT_TRUE(is_known(made->secret()));
  scheduler_.reset();
  v1::GenerateRequest generate;
  generate.set_model("small-model");
  generate.set_prompt("x");
  const auto generated = [&](const std::string& secret) {
    return ask<v1::InferenceService>(&v1::InferenceService::Stub::Generate, generate, secret)
        .status()
        .reason();
  };
  base::SystemRandom random;
  EXPECT_EQ(generated(made->secret()), "NO_WORKER") << "let in; there is no worker to go to";
  EXPECT_EQ(generated(auth::make_api_key(random)), "API_KEY_INVALID");
  EXPECT_EQ(generated(""), "API_KEY_MISSING");
  EXPECT_EQ(who(made->secret()).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace dex::server
