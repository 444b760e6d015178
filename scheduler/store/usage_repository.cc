#include "scheduler/store/usage_repository.h"

#include <algorithm>
#include <cstdlib>

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

constexpr size_t kRows = 500;  // of usage.lua

double amount(const Fields& fields, const std::string& name) {
  return std::strtod(text(fields, name).c_str(), nullptr);
}

}  // namespace

base::Status UsageRepository::add(const std::string& report, const std::vector<Generated>& rows) {
  DEX_RETURN_IF_ERROR(check_word("report_id", report));
  for (size_t from = 0; from < rows.size(); from += kRows) {
    const size_t end = std::min(rows.size(), from + kRows);
    std::vector<std::string> args = {"add", report + "-" + std::to_string(from),
                                     std::to_string(end - from)};
    for (size_t i = from; i < end; ++i) {
      DEX_RETURN_IF_ERROR(check_tenant(rows[i].tenant));
      args.push_back(rows[i].tenant);
      for (const int64_t value :
           {rows[i].prompt_tokens, rows[i].generated_tokens, rows[i].generations}) {
        args.push_back(std::to_string(std::max<int64_t>(value, 0)));
      }
    }
    DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("usage", std::move(args)));
    if (reply.str(0) != "OK" && reply.str(0) != "DUP") return unexpected("usage", reply);
  }
  return {};
}

base::Result<std::vector<UsageRepository::Day>> UsageRepository::days(const std::string& tenant,
                                                                      int count) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("usage", {"days", tenant, std::to_string(count)}));
  if (reply.str(0) != "OK") return unexpected("usage", reply);
  std::vector<Day> days;
  for (size_t i = 1; i < reply.elements.size(); ++i) {
    const auto fields = reply.at(i).at(1).fields();
    const auto whole = [&fields](const char* name) {
      return static_cast<int64_t>(amount(fields, name));
    };
    days.push_back({reply.at(i).num(0), whole("trained_tokens"), whole("prompt_tokens"),
                    whole("generated_tokens"), whole("generations"),
                    amount(fields, "device_seconds")});
  }
  return days;
}

}  // namespace dex::store
