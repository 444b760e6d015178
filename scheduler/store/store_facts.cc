#include "scheduler/store/store_facts.h"

#include <cstdlib>

namespace dex::store {

base::Result<StoreFacts> store_facts(Store& store) {
  DEX_ASSIGN_OR_RETURN(const Reply info, store.command({"INFO"}));
  DEX_ASSIGN_OR_RETURN(const Reply time, store.command({"TIME"}));
  StoreFacts facts;
  facts.now_ms = time.num(0) * 1000 + time.num(1) / 1000;
  const auto number = [&info](const char* name) {
    return std::atoll(info.info_field(name).c_str());
  };
  facts.version = info.info_field("redis_version");
  facts.mode = info.info_field("redis_mode");
  facts.role = info.info_field("role");
  facts.replicas = number("connected_slaves");
  facts.append_only = info.info_field("aof_enabled") == "1";
  facts.last_append = info.info_field("aof_last_write_status");
  facts.eviction = info.info_field("maxmemory_policy");
  facts.used_bytes = number("used_memory");
  facts.most_bytes = number("maxmemory");
  DEX_ASSIGN_OR_RETURN(const Reply fsync, store.command({"CONFIG", "GET", "*appendfsync*"}));
  auto settings = fsync.fields();
  facts.fsync = settings["appendfsync"];
  facts.fsync_in_rewrite = settings["no-appendfsync-on-rewrite"];
  DEX_ASSIGN_OR_RETURN(const Reply directory, store.command({"CONFIG", "GET", "dir"}));
  facts.directory = directory.str(1);
  return facts;
}

}  // namespace dex::store
