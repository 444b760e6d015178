#include "scheduler/core/prices.h"

#include <algorithm>
#include <charconv>

namespace dex::core {

namespace {

constexpr double kMostAnHour = 1e6;
constexpr double kSecondsAnHour = 3600;

base::Status bad_price(const std::string& text, const std::string& what) {
  return base::invalid_field("device-hour-price", "a price must be AMOUNT or POOL=AMOUNT, " + what +
                                                      "; got '" + text + "'");
}

}  // namespace

base::Result<Prices> parse_prices(const std::vector<std::string>& texts,
                                  const std::string& currency) {
  Prices prices;
  if (texts.empty() != currency.empty())
    return base::invalid_field("currency", "prices and their currency are given together or not");
  const bool three =
      currency.size() == 3 &&
      std::all_of(currency.begin(), currency.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (!currency.empty() && !three)
    return base::invalid_field(
        "currency", "must be three capital letters, such as EUR; got '" + currency + "'");
  prices.currency = currency;
  for (const std::string& text : texts) {
    const size_t mark = text.find('=');
    const std::string pool = mark == std::string::npos ? "" : text.substr(0, mark);
    const std::string amount = mark == std::string::npos ? text : text.substr(mark + 1);
    if (mark == 0) return bad_price(text, "with the pool's name");
    double value = -1;
    const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), value);
    if (error != std::errc() || end != amount.data() + amount.size() ||
        !(value >= 0 && value <= kMostAnHour))
      return bad_price(text, "0 to 1000000");
    if (!prices.by_pool.emplace(pool, value).second) return bad_price(text, "each pool once");
  }
  return prices;
}

std::optional<double> cost_of(const Prices& prices, const std::string& pool, double seconds) {
  auto found = prices.by_pool.find(pool);
  if (found == prices.by_pool.end()) found = prices.by_pool.find("");
  if (found == prices.by_pool.end()) return std::nullopt;
  return found->second * seconds / kSecondsAnHour;
}

}  // namespace dex::core
