#include "tests/support/store_snapshot.h"

#include <algorithm>
#include <cstdlib>

namespace dex::support {

namespace {

// No #!lua line: then a script may read keys that it does not declare, also in a cluster.
constexpr const char* kReadAll = R"lua(
local p, after, whole = ARGV[1], ARGV[2], ARGV[3] == 'whole'
local keys = redis.call('KEYS', p .. '*')
table.sort(keys)
local rows, all = {}, {}
for _, key in ipairs(keys) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'hash' then
    value = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then
    value = redis.call('SMEMBERS', key)
    table.sort(value)
  elseif kind == 'stream' then
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    value = {string.format('%.0f', redis.call('XLEN', key)), last and last[1] or ''}
  else
    value = {redis.call('GET', key)}
  end
  local expiry = string.format('%.0f', redis.call('PEXPIRETIME', key))
  all[#all + 1] = key .. '\0' .. expiry .. '\0' .. table.concat(value, '\0')
  if whole then rows[#rows + 1] = {string.sub(key, #p + 1), kind, value} end
end
local events = {}
if whole then
  events = redis.call('XRANGE', p .. 'events', after == '' and '-' or '(' .. after, '+')
end
return {redis.sha1hex(table.concat(all, '\n')), rows, events}
)lua";

store::Reply read_all(const RedisCall& call, const std::string& prefix, const std::string& after,
                      const std::string& what) {
  return call({"EVAL", kReadAll, "0", prefix, after, what});
}

void take_row(const store::Reply& row, StoreSnapshot& snapshot) {
  const std::string& name = row.str(0);
  const std::string& kind = row.str(1);
  const store::Reply& value = row.at(2);
  if (kind == "hash" && name.starts_with("job:")) {
    snapshot.jobs[name.substr(4)] = value.fields();
  } else if (kind == "hash") {
    snapshot.hashes[name] = value.fields();
  } else if (kind == "zset") {
    StoreSnapshot::Members& members = snapshot.zsets[name];
    for (size_t i = 0; i + 1 < value.elements.size(); i += 2)
      members[value.str(i)] = std::strtod(value.str(i + 1).c_str(), nullptr);
  } else if (kind == "set") {
    for (const store::Reply& member : value.elements) snapshot.sets[name].insert(member.text);
  } else if (kind == "stream") {
    snapshot.streams[name] = {value.num(0), value.str(1)};
  } else {
    snapshot.strings[name] = value.str(0);
  }
}

}  // namespace

const StoreSnapshot::Fields& StoreSnapshot::hash(const std::string& name) const {
  static const Fields none;
  const auto found = hashes.find(name);
  return found == hashes.end() ? none : found->second;
}

const StoreSnapshot::Members& StoreSnapshot::zset(const std::string& name) const {
  static const Members none;
  const auto found = zsets.find(name);
  return found == zsets.end() ? none : found->second;
}

std::vector<std::string> StoreSnapshot::ordered(const std::string& name) const {
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [member, score] : zset(name)) rows.emplace_back(score, member);
  std::sort(rows.begin(), rows.end());
  std::vector<std::string> members;
  for (const auto& [score, member] : rows) members.push_back(member);
  return members;
}

const std::string& text_of(const StoreSnapshot::Fields& fields, const std::string& name) {
  static const std::string none;
  const auto found = fields.find(name);
  return found == fields.end() ? none : found->second;
}

double number_of(const StoreSnapshot::Fields& fields, const std::string& name) {
  return std::strtod(text_of(fields, name).c_str(), nullptr);
}

bool is_terminal(const std::string& state) {
  return state == "SUCCEEDED" || state == "FAILED" || state == "CANCELLED";
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

StoreSnapshot read_store(const RedisCall& call, const std::string& events_after,
                         const std::string& prefix) {
  const store::Reply reply = read_all(call, prefix, events_after, "whole");
  StoreSnapshot snapshot;
  snapshot.digest = reply.str(0);
  for (const store::Reply& row : reply.at(1).elements) take_row(row, snapshot);
  for (const store::Reply& entry : reply.at(2).elements) {
    const auto fields = entry.at(1).fields();
    snapshot.events.push_back({entry.str(0), text_of(fields, "job"), text_of(fields, "state"),
                               text_of(fields, "epoch"), text_of(fields, "worker"),
                               text_of(fields, "why")});
  }
  return snapshot;
}

std::string digest_of_store(const RedisCall& call, const std::string& prefix) {
  return read_all(call, prefix, "", "digest").str(0);
}

}  // namespace dex::support
