#include "scheduler/store/store_facts.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace dex::store {

namespace {

// INFO's "name:value" lines, of all sections.
std::map<std::string, std::string> info_fields(const std::string& text) {
  std::map<std::string, std::string> fields;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line[0] != '#')
      fields[line.substr(0, colon)] = line.substr(colon + 1);
    at = end + 1;
  }
  return fields;
}

}  // namespace

base::Result<StoreFacts> store_facts(Store& store) {
  DEX_ASSIGN_OR_RETURN(const Reply info, store.command({"INFO"}));
  DEX_ASSIGN_OR_RETURN(const Reply time, store.command({"TIME"}));
  StoreFacts facts;
  facts.now_ms = time.num(0) * 1000 + time.num(1) / 1000;
  auto fields = info_fields(info.text);
  const auto number = [&fields](const char* name) { return std::atoll(fields[name].c_str()); };
  facts.version = fields["redis_version"];
  facts.mode = fields["redis_mode"];
  facts.role = fields["role"];
  facts.replicas = number("connected_slaves");
  facts.append_only = fields["aof_enabled"] == "1";
  facts.last_append = fields["aof_last_write_status"];
  facts.eviction = fields["maxmemory_policy"];
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
