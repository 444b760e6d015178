// What an operator asks for devices, and what that makes of an estimate.

#include "scheduler/core/prices.h"

#include <gmock/gmock.h>

#include "scheduler/core/estimate.h"
#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

TEST(PricesTest, AnEstimateHasTheCostOfItsPool) {
  DeviceFacts device;
  ResolveInput in = input();
  in.spec.set_pool("gpu1");
  EXPECT_FALSE(estimate(resolved(in), in.model, device).has_cost()) << "nobody asks anything";
  device.prices = parse_prices({"0.36", "gpu1=7.2"}, "EUR").value();
  const auto out = estimate(resolved(in), in.model, device);
  EXPECT_DOUBLE_EQ(out.cost(), out.expected_duration_seconds() * 0.002);
  EXPECT_EQ(out.cost_currency(), "EUR");
  in.spec.set_pool("cpu");
  const auto other = estimate(resolved(in), in.model, device);
  EXPECT_DOUBLE_EQ(other.cost(), other.expected_duration_seconds() * 0.0001);
  device.prices = parse_prices({"gpu1=7.2"}, "EUR").value();
  EXPECT_FALSE(estimate(resolved(in), in.model, device).has_cost()) << "not of this pool";
  device.prices = parse_prices({"0"}, "EUR").value();
  EXPECT_TRUE(estimate(resolved(in), in.model, device).has_cost()) << "free is a price";
}

TEST(PricesTest, WhatIsNoPriceIsRefused) {
  for (const std::string text : {"x", "", "-1", "1e9", "gpu1=", "=2", "1.5 "})
    EXPECT_EQ(parse_prices({text}, "EUR").status().reason(), "INVALID_FIELD") << text;
  EXPECT_EQ(parse_prices({"1", "2"}, "EUR").status().reason(), "INVALID_FIELD");
  EXPECT_EQ(parse_prices({"1"}, "").status().reason(), "INVALID_FIELD");
  EXPECT_EQ(parse_prices({}, "EUR").status().reason(), "INVALID_FIELD");
  EXPECT_EQ(parse_prices({"1"}, "euro").status().reason(), "INVALID_FIELD");
  EXPECT_TRUE(parse_prices({}, "").ok());
}

}  // namespace
}  // namespace dex::core
