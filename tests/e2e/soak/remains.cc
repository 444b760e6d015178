#include "tests/e2e/soak/remains.h"

#include <sys/types.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/support/processes.h"

namespace dex::support {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kDay_ms = int64_t{24} * 3600 * 1000;
constexpr const char* kRequests = "dex:{s0}:idem:";
// What a tenant has used: a record a day, which is to stay, and midnight may come meanwhile.
constexpr const char* kUsage = "dex:{s0}:usage";

std::set<std::string> all_keys(RedisServer& redis) {
  std::set<std::string> keys;  // SCAN may answer one twice
  std::string cursor = "0";
  do {
    const store::Reply page = redis.call({"SCAN", cursor, "COUNT", "1000"});
    cursor = page.str(0);
    for (const store::Reply& key : page.at(1).elements) keys.insert(key.text);
  } while (cursor != "0");
  return keys;
}

std::string line_of(RedisServer& redis, const std::string& key) {
  const std::string type = redis.call({"TYPE", key}).text;
  store::Reply inside;
  if (type == "hash") inside = redis.call({"HKEYS", key});
  if (type == "set") inside = redis.call({"SMEMBERS", key});
  if (type == "zset") inside = redis.call({"ZRANGE", key, "0", "-1"});
  std::set<std::string> words;
  for (const store::Reply& word : inside.elements) words.insert(word.text);
  std::string line = type + " " + key + ":";
  for (const std::string& word : words) line += " " + word;
  return line;
}

std::vector<std::string> files_below(const fs::path& data_dir) {
  std::vector<std::string> files;
  const fs::path jobs = data_dir / "jobs";
  std::error_code moved;  // something is just being removed: the next look sees the rest
  for (fs::recursive_directory_iterator it(data_dir, moved), end; it != end; it.increment(moved)) {
    const fs::path path = it->path();
    const bool of_a_job = path.parent_path().parent_path() == jobs;
    if (of_a_job || !it->is_directory(moved))
      files.push_back(path.lexically_relative(data_dir).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Remains::Held held_by(pid_t pid) {
  return {count_children(pid), count_descriptors(pid), count_threads(pid), resident_mib(pid)};
}

}  // namespace

Remains remains_of(ChaosPlatform& platform) {
  Remains remains;
  for (const std::string& key : all_keys(platform.redis())) {
    if (!key.starts_with(kRequests) && !key.starts_with(kUsage))
      remains.keys.push_back(line_of(platform.redis(), key));
  }
  std::sort(remains.keys.begin(), remains.keys.end());
  remains.files = files_below(platform.data_dir());
  remains.processes["redis"] = held_by(platform.redis().pid());
  remains.processes["gateway"] = held_by(platform.gateway().pid());
  for (const auto* programs : {&platform.schedulers(), &platform.agents()}) {
    for (const auto& program : *programs)
      remains.processes[program->name()] = held_by(program->pid());
  }
  return remains;
}

std::vector<std::string> difference(const std::vector<std::string>& before,
                                    const std::vector<std::string>& after) {
  std::vector<std::string> came, went, all;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(came));
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(went));
  for (const std::string& line : came) all.push_back("+ " + line);
  for (const std::string& line : went) all.push_back("- " + line);
  return all;
}

std::vector<std::string> immortal_requests(RedisServer& redis) {
  std::vector<std::string> immortal;
  for (const std::string& key : all_keys(redis)) {
    if (!key.starts_with(kRequests)) continue;
    const int64_t left_ms = redis.call({"PTTL", key}).as_int();
    if (left_ms < 0 || left_ms > kDay_ms) immortal.push_back(key);
  }
  return immortal;
}

}  // namespace dex::support
