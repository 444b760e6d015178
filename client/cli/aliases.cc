// dexctl adapters alias: names that point to adapters.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/aliases.h"
#include "client/cli/exit_code.h"
#include "client/cli/names.h"
#include "client/cli/question.h"

namespace dex::cli {

namespace {

Table alias_table(const std::vector<v1::AdapterAlias>& aliases) {
  Table table = {{"ALIAS", "ADAPTER", "VERSION", "SET", "BEFORE"}};
  for (const auto& alias : aliases) {
    const bool moved = alias.targets_size() > 1;
    table.push_back({alias.alias(), alias.adapter(), alias.version(),
                     alias.targets().empty() ? "–" : local_time(alias.targets(0).set_time()),
                     moved ? alias.targets(1).adapter() : "–"});
  }
  return table;
}

int show(Context& context, const base::Result<v1::AdapterAlias>& alias) {
  if (!alias.ok()) return context.output.failure(alias.status());
  context.output.result(*alias, alias->alias(), alias_table({*alias}));
  return kDone;
}

base::Result<std::vector<v1::AdapterAlias>> every_alias(Context& context) {
  std::vector<v1::AdapterAlias> aliases;
  v1::ListAdapterAliasesRequest request;
  request.set_page_size(1000);
  do {
    auto page = context.client.list_adapter_aliases(request);
    if (!page.ok()) return page.status();
    aliases.insert(aliases.end(), page->aliases().begin(), page->aliases().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return aliases;
}

int list(Context& context) {
  const auto aliases = every_alias(context);
  if (!aliases.ok()) return context.output.failure(aliases.status());
  v1::ListAdapterAliasesResponse reply;
  std::vector<std::string> names;
  for (const auto& alias : *aliases) {
    *reply.add_aliases() = alias;
    names.push_back(alias.alias());
  }
  context.output.list(reply, names, alias_table(*aliases),
                      "no aliases yet; dexctl adapters alias NAME ft:… makes one");
  return kDone;
}

// Back to where it pointed before, unless somebody has moved it meanwhile.
int roll_back(Context& context, v1::SetAdapterAliasRequest request) {
  const auto aliases = every_alias(context);
  if (!aliases.ok()) return context.output.failure(aliases.status());
  for (const auto& alias : *aliases) {
    if (alias.alias() != request.alias()) continue;
    if (alias.targets_size() < 2) {
      return context.output.failure(base::invalid_argument(
          "INVALID_FIELD", "the alias '" + alias.alias() + "' has pointed to one adapter only"));
    }
    request.set_adapter(alias.targets(1).adapter());
    request.set_etag(alias.etag());
    return show(context, context.client.set_adapter_alias(std::move(request)));
  }
  return context.output.failure(
      base::not_found("RESOURCE_NOT_FOUND", "There is no alias '" + request.alias() + "'."));
}

int remove(Context& context, const std::string& alias, bool yes) {
  int code = kDone;
  if (!yes && !agreed(context, "Delete the alias " + alias + "? Its adapter stays.", code))
    return code;
  return show(context, context.client.delete_adapter_alias(alias));
}

}  // namespace

void add_aliases(CLI::App& adapters, Action& action) {
  auto* verb = add_verb(adapters, "alias",
                        "point a name to an adapter, for every client at once; without an adapter, "
                        "list the names",
                        "dexctl adapters alias\n"
                        "dexctl adapters alias live ft:…\n"
                        "dexctl adapters alias live --rollback\n"
                        "dexctl adapters alias live --delete --yes");
  struct Flags {
    v1::SetAdapterAliasRequest request;
    std::string alias, adapter;
    double wait = 60;
    bool rollback = false, gone = false, override_gates = false, yes = false;
  };
  auto flags = std::make_shared<Flags>();
  auto* name = verb->add_option("name", flags->alias, "what clients say instead of the id");
  auto* id = verb->add_option("id", flags->adapter, "adapter id, or an alias: what it points to");
  auto* back = verb->add_flag("--rollback", flags->rollback, "to where it pointed before");
  auto* gone = verb->add_flag("--delete", flags->gone, "forget the name; the adapter stays");
  verb->add_flag("--override-gates", flags->override_gates,
                 "also to an adapter whose gates have not passed; for admins");
  verb->add_option("--wait", flags->wait, "seconds to wait for the workers, 0 to 600");
  verb->add_flag("-y,--yes", flags->yes, "don't ask")->needs(gone);
  id->needs(name);
  back->needs(name)->excludes(id);
  gone->needs(name)->excludes(id)->excludes(back);
  verb->callback([&action, flags] {
    action = [flags](Context& c) {
      if (flags->alias.empty()) return list(c);
      if (flags->gone) return remove(c, flags->alias, flags->yes);
      flags->request.set_alias(flags->alias);
      flags->request.set_adapter(flags->adapter);
      flags->request.set_override_gates(flags->override_gates);
      flags->request.set_wait_seconds(flags->wait);
      if (flags->rollback) return roll_back(c, flags->request);
      if (flags->adapter.empty()) {
        return c.output.failure(base::invalid_argument(
            "MISSING_FIELD", "name an adapter, or say --rollback or --delete"));
      }
      return show(c, c.client.set_adapter_alias(flags->request));
    };
  });
}

}  // namespace dex::cli
