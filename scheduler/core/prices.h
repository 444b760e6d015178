#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace dex::core {

// What an operator asks for a device for an hour, by pool; "" is every pool that is not named.
struct Prices {
  std::string currency;  // ISO 4217: "EUR"; empty: nothing is asked
  std::map<std::string, double> by_pool;
};

// From the operator's flags: "2.50" for every pool, "gpu1=2.50" for one. INVALID_FIELD names the
// text: no amount from 0 to 1,000,000, a pool twice, prices without a currency or the other way
// round, a currency that is not three capital letters.
base::Result<Prices> parse_prices(const std::vector<std::string>& texts,
                                  const std::string& currency);

// Of so many seconds on one device of a pool; nothing where it has no price.
std::optional<double> cost_of(const Prices& prices, const std::string& pool, double seconds);

}  // namespace dex::core
