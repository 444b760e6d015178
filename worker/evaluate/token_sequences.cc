#include "worker/evaluate/token_sequences.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace dex::evaluate {
namespace {

using nlohmann::json;

constexpr const char* kWanted = "must be a JSON array of arrays of token ids, e.g. [[504,4041]]";

std::vector<int32_t> parse_sequence(const json& in, const std::string& where,
                                    const SequenceLimits& limits) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(where + " " + what);
  };
  if (!in.is_array()) refuse("is no array of token ids but " + std::string(in.type_name()));
  if (in.size() < 2) {
    refuse("has " + std::to_string(in.size()) +
           " ids: at least 2 are needed, one of them to be predicted");
  }
  if (in.size() > static_cast<size_t>(limits.context)) {
    refuse("has " + std::to_string(in.size()) + " ids, the model reads at most " +
           std::to_string(limits.context) + ": cut it");
  }
  std::vector<int32_t> ids;
  for (const json& id : in) {
    const std::string place = "at place " + std::to_string(ids.size() + 1);
    if (!id.is_number_integer()) refuse(place + " has no whole number but " + id.dump());
    const bool known =
        id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(limits.vocabulary);
    if (!known) {
      refuse(place + " has id " + id.dump() + ", the model has 0…" +
             std::to_string(limits.vocabulary - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

std::vector<std::vector<int32_t>> parse_token_sequences(std::string_view text,
                                                        const std::string& source,
                                                        const SequenceLimits& limits) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (in.is_discarded() || !in.is_array()) throw std::runtime_error(source + ": " + kWanted);
  if (in.empty()) throw std::runtime_error(source + ": holds no sequence; it " + kWanted);
  std::vector<std::vector<int32_t>> out;
  for (const json& sequence : in) {
    const std::string where = source + ": sequence " + std::to_string(out.size() + 1);
    out.push_back(parse_sequence(sequence, where, limits));
  }
  return out;
}

}  // namespace dex::evaluate
