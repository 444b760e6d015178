// `dexctl keys`, `whoami`: API keys, and whose the caller's is.
#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/names.h"
#include "services/rpc/times.h"

namespace dex::cli {

namespace {

constexpr double kLongestLifeDays = 36'500;

std::string with_spaces(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string state_of(const v1::ApiKey& key) {
  switch (key.state()) {
    case v1::ApiKey::STATE_ACTIVE:
      return "active";
    case v1::ApiKey::STATE_EXPIRED:
      return "expired";
    case v1::ApiKey::STATE_REVOKED:
      return "revoked";
    default:
      return "?";
  }
}

std::string time_or(const google::protobuf::Timestamp& time, const char* never) {
  const std::string text = local_time(time);
  return text.empty() ? never : text;
}

Table key_table(const std::vector<v1::ApiKey>& keys) {
  Table table = {{"ID", "NAME", "TENANT", "STATE", "KEY", "SCOPES", "CREATED", "EXPIRES", "USED"}};
  for (const auto& key : keys) {
    table.push_back({key.id(), key.name(), key.tenant(), state_of(key), key.prefix() + "…",
                     with_spaces(key.scopes()), local_time(key.create_time()),
                     time_or(key.expire_time(), "never"),
                     time_or(key.last_used_time(), "not yet")});
  }
  return table;
}

int create(Context& context, const v1::CreateApiKeyRequest& request) {
  const auto key = context.client.create_api_key(request);
  if (!key.ok()) return context.output.failure(key.status());
  if (key->secret().empty()) {
    context.output.note("the answer with the secret was lost on the way: revoke " + key->id() +
                        " and make another key");
    return kOwnFault;
  }
  if (context.output.format() != Format::kTable) {
    // For scripts: the key itself is what they came for.
    context.output.result(*key, key->secret(), {});
    return kDone;
  }
  context.output.note("key " + key->id() + " of tenant " + key->tenant() + ": " +
                      with_spaces(key->scopes()));
  context.output.note(
      "This is shown once. Keep it in a file that only you can read, and name that "
      "with --api-key-file, or set DEX_API_KEY:");
  context.output.out() << key->secret() << "\n";
  return kDone;
}

int list(Context& context, const std::string& tenant) {
  const auto reply = context.client.list_api_keys(tenant);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& key : reply->keys()) ids.push_back(key.id());
  context.output.list(*reply, ids, key_table({reply->keys().begin(), reply->keys().end()}),
                      "no keys; dexctl keys create makes one");
  return kDone;
}

int revoke(Context& context, const std::string& id) {
  const auto key = context.client.revoke_api_key(id);
  if (!key.ok()) return context.output.failure(key.status());
  context.output.note("refused from now on, at every gateway within seconds");
  context.output.result(*key, key->id(), key_table({*key}));
  return kDone;
}

int who_am_i(Context& context) {
  const auto caller = context.client.who_am_i();
  if (!caller.ok()) return context.output.failure(caller.status());
  context.output.result(
      *caller, caller->tenant(),
      {{"TENANT", "KEY", "OPERATOR", "SCOPES"},
       {caller->tenant(), caller->key().empty() ? "(none asked for)" : caller->key(),
        caller->operator_() ? "yes" : "no", with_spaces(caller->scopes())}});
  return kDone;
}

struct CreateFlags {
  std::string name, tenant;
  std::vector<std::string> scopes;
  double days = 0;
};

void add_create(CLI::App& keys, Action& action) {
  auto* verb =
      add_verb(keys, "create", "make a key; it is shown once and stored nowhere",
               "dexctl keys create ci --scopes jobs:read jobs:write files:write --days 90\n"
               "(umask 077; dexctl keys create team-a --tenant team-a --scopes admin infer "
               "--output id > team-a.key)");
  auto flags = std::make_shared<CreateFlags>();
  verb->add_option("name", flags->name, "for people, 1 to 64 characters")->required();
  verb->add_option("--scopes", flags->scopes,
                   "what it opens: files:read files:write jobs:read jobs:write adapters:read "
                   "adapters:write adapters:serve infer eval:read eval:write metrics:read admin")
      ->required();
  verb->add_option("--days", flags->days, "until it expires; left out: never")
      ->check(CLI::Range(0.0001, kLongestLifeDays));
  verb->add_option("--tenant", flags->tenant,
                   "whose it is (yours); another one is the operator's "
                   "to name");
  verb->callback([&action, flags] {
    v1::CreateApiKeyRequest request;
    request.set_name(flags->name);
    request.set_tenant(flags->tenant);
    for (const auto& scope : flags->scopes) request.add_scopes(scope);
    if (flags->days > 0) {
      constexpr double kDayMs = 86'400'000;
      const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch());
      *request.mutable_expire_time() =
          rpc::timestamp(now.count() + static_cast<int64_t>(flags->days * kDayMs));
    }
    action = [request](Context& c) { return create(c, request); };
  });
}

}  // namespace

void add_keys(CLI::App& app, Action& action) {
  auto* keys = app.add_subcommand("keys", "API keys: who may call, as whom, and what they may do");
  keys->require_subcommand(1);
  add_create(*keys, action);
  auto* all = add_verb(*keys, "list", "newest first, also revoked and expired ones",
                       "dexctl keys list\ndexctl keys list --tenant team-a");
  auto tenant = std::make_shared<std::string>();
  all->add_option("--tenant", *tenant, "whose (yours); another one is the operator's to name");
  all->callback([&action, tenant] { action = [tenant](Context& c) { return list(c, *tenant); }; });
  auto* end = add_verb(*keys, "revoke", "refuse a key from now on", "dexctl keys revoke key-01jd…");
  auto id = std::make_shared<std::string>();
  end->add_option("id", *id, "of dexctl keys list")->required();
  end->callback([&action, id] { action = [id](Context& c) { return revoke(c, *id); }; });
  add_verb(app, "whoami", "whose key this is, and what it opens", "dexctl whoami")
      ->callback([&action] { action = who_am_i; });
}

}  // namespace dex::cli
