#include "services/gateway/openai/json_body.h"

#include <gmock/gmock.h>

namespace dex::gateway::openai {
namespace {

using ::testing::HasSubstr;

TEST(ParseObjectTest, RefusesWhatIsNoObjectAndWhatWouldBeIgnored) {
  EXPECT_EQ(parse_object("").status().reason(), "INVALID_FIELD");
  EXPECT_EQ(parse_object("{\"a\": 1").status().reason(), "INVALID_FIELD");
  EXPECT_EQ(parse_object("\"\xff\"").status().reason(), "INVALID_FIELD");
  EXPECT_THAT(parse_object("[1]").status().message(), HasSubstr("[1]"));
  const auto twice = parse_object(R"({"a": {"n": 1, "n": 2}})").status();
  EXPECT_THAT(twice.message(), HasSubstr("'n' comes twice"));
  EXPECT_TRUE(parse_object(R"({"a": {"n": 1}, "b": {"n": 2}})").ok());
}

TEST(ParseObjectTest, DepthIsBounded) {
  const auto nested = [](size_t levels) {
    return R"({"a":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_TRUE(parse_object(nested(50)).ok());
  EXPECT_THAT(parse_object(nested(70)).status().message(), HasSubstr("64 levels"));
  EXPECT_FALSE(parse_object(nested(1'000'000)).ok());
}

TEST(ObjectReaderTest, AllFaultsOfABodyComeAtOnceWithTheirPaths) {
  const json body =
      json::parse(R"({"n": 1.5, "stop": [1], "temprature": 1, "seed": 9, "user": 7})");
  Faults faults;
  ObjectReader reader(body, "", faults);
  EXPECT_FALSE(reader.integer("n", 1, 16));
  EXPECT_FALSE(reader.texts("stop", 16));
  EXPECT_FALSE(reader.number("temperature"));
  EXPECT_FALSE(reader.integer("seed", 10, 20));
  reader.required_text("model");
  reader.accept({"user"});
  reader.end();
  const auto status = faults.status();
  EXPECT_EQ(status.reason(), "INVALID_FIELD") << "that of the first";
  ASSERT_EQ(status.violations().size(), 5U);
  EXPECT_EQ(status.violations()[2].field, "seed");
  EXPECT_EQ(status.violations()[3].field, "model");
  EXPECT_EQ(status.violations()[4].field, "temprature");
  EXPECT_THAT(status.violations()[4].description, HasSubstr("did you mean temperature?"));
}

TEST(ObjectReaderTest, NullIsAbsentAndWholeNumbersMayBeWrittenAsFloats) {
  const json body = json::parse(R"({"a": null, "b": 3.0, "c": 18446744073709551615})");
  Faults faults;
  ObjectReader reader(body, "x", faults);
  EXPECT_FALSE(reader.text("a"));
  EXPECT_EQ(reader.integer("b", 0, 10), 3);
  EXPECT_TRUE(faults.empty());
  EXPECT_FALSE(reader.integer("c", 0, INT64_MAX));
  EXPECT_EQ(faults.status().violations().at(0).field, "x.c");
}

}  // namespace
}  // namespace dex::gateway::openai
