#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/reply.h"

// How records lie in hashes and streams.
namespace dex::store {

using Fields = std::map<std::string, std::string>;

const std::string& text(const Fields& fields, const std::string& name);  // "" when missing
int64_t number(const Fields& fields, const std::string& name);           // 0 when missing
std::vector<std::string> split_words(const std::string& text);
std::string join_words(const std::vector<std::string>& words);

JobRecord job_from(const Fields& fields);
WorkerRecord worker_from(const Fields& fields);
// One stream entry: {"<sequence>-0", {field, value, …}}.
LogEntry log_from(const Reply& entry);
// As read_events() of lib.lua wants them.
void append_events(const std::vector<NewEvent>& events, std::vector<std::string>& args);
void append_checkpoint(const Checkpoint& checkpoint, std::vector<std::string>& args);

}  // namespace dex::store
