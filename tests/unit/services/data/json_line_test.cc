#include "services/data/json_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace dex::data {
namespace {

struct Parsed {
  JsonLine json;
  bool ok = false;
  std::vector<JsonLine::Fault> faults;
};

Parsed parse(std::string_view line) {
  Parsed parsed;
  parsed.ok = parsed.json.parse(
      line, [&](JsonLine::Fault fault) { parsed.faults.push_back(std::move(fault)); });
  return parsed;
}

JsonLine::Fault fault(std::string_view line) {
  const Parsed parsed = parse(line);
  EXPECT_EQ(parsed.faults.size(), 1u) << line;
  return parsed.faults.empty() ? JsonLine::Fault{} : parsed.faults.front();
}

TEST(JsonLineTest, KeepsValuesAndTheirPlaces) {
  const std::string line =
      R"( {"a": [1, -2.5e1, "x\n\u00e9\ud83d\ude00"], "b": null, "c": {"d": true}} )";
  const Parsed parsed = parse(line);
  ASSERT_TRUE(parsed.ok);
  const auto root = parsed.json.root();
  const auto a = root.find("a").value();
  std::vector<std::string> raw;
  a.for_each_item([&](size_t, JsonLine::Value item) { raw.emplace_back(item.raw()); });
  EXPECT_EQ(raw, (std::vector<std::string>{"1", "-2.5e1", R"("x\n\u00e9\ud83d\ude00")"}));
  a.for_each_item([&](size_t i, JsonLine::Value item) {
    if (i == 0) {
      EXPECT_EQ(item.integer(), 1);
    } else if (i == 1) {
      EXPECT_EQ(item.number(), -25);
    } else {
      EXPECT_EQ(item.string(), "x\né😀");
    }
  });
  EXPECT_EQ(a.size(), 3u);
  EXPECT_EQ(a.offset(), line.find('['));
  EXPECT_TRUE(root.find("b")->is(JsonLine::Kind::kNull));
  EXPECT_TRUE(root.find("c")->find("d")->is(JsonLine::Kind::kBool));
  EXPECT_FALSE(root.find("d"));
}

TEST(JsonLineTest, IntegersAreWholeNumbers) {
  const Parsed parsed = parse("[1, 1.0, 1e3, 1.5, 9223372036854775807, 1e30]");
  std::vector<std::optional<int64_t>> values;
  parsed.json.root().for_each_item(
      [&](size_t, JsonLine::Value v) { values.push_back(v.integer()); });
  EXPECT_EQ(values, (std::vector<std::optional<int64_t>>{1, 1, 1000, std::nullopt, INT64_MAX,
                                                         std::nullopt}));
}

TEST(JsonLineTest, NamesColumnExpectationAndPath) {
  const auto comma = fault(R"({"é": [1, {"b": 2 "c": 3}]})");
  EXPECT_EQ(comma.code, "invalid_json");
  EXPECT_EQ(comma.message, "column 19: expected ',' or '}', found '\"'");
  EXPECT_EQ(comma.offset, 19u);  // é has two bytes
  EXPECT_EQ(comma.path, "$.é[1].b");
  EXPECT_FALSE(comma.at_end);
  EXPECT_EQ(fault(R"({"a": 1,})").message, "column 9: expected a key in double quotes, found '}'");
  EXPECT_EQ(fault(R"({"a": 1,})").hint, "take the comma before it out");
  EXPECT_EQ(fault("{'a': 1}").offset, 1u);
  EXPECT_NE(fault("{'a': 1}").hint.find("json.dumps"), std::string::npos);
  EXPECT_NE(fault(R"({"a": None})").hint.find("Python"), std::string::npos);
  EXPECT_NE(fault(R"({"a": NaN})").hint.find("NaN"), std::string::npos);
  EXPECT_NE(fault(R"({"a": 1}{"a": 2})").hint.find("one object a line"), std::string::npos);
}

TEST(JsonLineTest, TellsCutOffLinesFromWrongOnes) {
  EXPECT_TRUE(fault(R"({"a": [1, 2)").at_end);
  EXPECT_TRUE(fault(R"({"a": tru)").at_end);
  EXPECT_TRUE(fault("").at_end);
  EXPECT_FALSE(fault(R"({"a": [1, 2)").in_string);
  EXPECT_TRUE(fault(R"({"a": "abc)").in_string);
  EXPECT_TRUE(fault(R"({"a": "abc\)").in_string);
  EXPECT_TRUE(fault(R"({"a": "abc\u00)").at_end);
  EXPECT_FALSE(fault(R"({"a": trux})").at_end);
}

TEST(JsonLineTest, RefusesWhatTheStandardRefuses) {
  for (const std::string_view line : {"01",
                                      "+1",
                                      ".5",
                                      "1.",
                                      "1e",
                                      "--1",
                                      "0x10",
                                      "\"\t\"",
                                      "\"\\x\"",
                                      "\"\\u12g4\"",
                                      "[1,]",
                                      "[,1]",
                                      "{\"a\"}",
                                      "{1:2}",
                                      "[1 2]",
                                      "nul",
                                      "True",
                                      "1e999",
                                      "-1e999",
                                      "[1]]",
                                      "\"a\" \"b\"",
                                      "\x01",
                                      "{\"a\":1,,\"b\":2}",
                                      "\xEF\xBB\xBF{}"}) {
    const Parsed parsed = parse(line);
    EXPECT_FALSE(parsed.ok) << line;
    EXPECT_EQ(parsed.faults.size(), 1u) << line;
  }
  for (const std::string_view line :
       {"0", "-0.0e-1", "1e-999", "\"\"", "[]", "{}", " [ ] ", "\"\\/\\b\\f\"", "\"\x7f\""}) {
    EXPECT_TRUE(parse(line).ok) << line;
  }
}

TEST(JsonLineTest, FindsDuplicateKeysHoweverTheyAreWritten) {
  const auto escaped = fault(R"({"x": {"ab": 1, "c": 2, "a\u0062": 3}})");
  EXPECT_EQ(escaped.code, "duplicate_key");
  EXPECT_EQ(escaped.path, "$.x.ab");
  EXPECT_EQ(escaped.offset, 24u);
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  const auto far = fault(many + "\"k7\": 1}");
  EXPECT_EQ(far.code, "duplicate_key");
  EXPECT_EQ(far.path, "$.k7");
  EXPECT_TRUE(parse(R"({"a": {"a": {"a": 1}}, "b": {"a": 1}})").faults.empty());
}

TEST(JsonLineTest, FindsLoneSurrogates) {
  const auto lone = fault(R"({"a": ["x\ud800y"]})");
  EXPECT_EQ(lone.code, "lone_surrogate");
  EXPECT_EQ(lone.offset, 9u);
  EXPECT_EQ(lone.path, "$.a[0]");
  EXPECT_EQ(fault(R"(["\udc00"])").code, "lone_surrogate");
  EXPECT_EQ(parse(R"(["\ud800\ud800"])").faults.size(), 2u);
  EXPECT_TRUE(parse(R"(["\ud83d\ude00"])").faults.empty());
}

TEST(JsonLineTest, StopsAt32Levels) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse(nested(32)).ok);
  const auto deep = fault(nested(33));
  EXPECT_EQ(deep.code, "nesting_too_deep");
  EXPECT_EQ(deep.offset, 32u);
  EXPECT_EQ(fault(std::string(8 << 20, '[')).code, "nesting_too_deep");
}

// An independent parser as the oracle: what one takes the other takes, and reads the same.
TEST(JsonLineTest, AgreesWithNlohmannOnMutatedLines) {
  std::mt19937 random(3);
  const std::string seed =
      R"({"a":[1,-2.5e3,true,null,"x\u00e9\n"],"b":{"c":"\ud83d\ude00","d":[]},"e":0.0})";
  const std::string alphabet = "{}[]\",:\\u0123456789eE+-.tfn ax";
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string line = seed;
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          line.erase(at, 1);
          break;
        default:
          line.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    const auto expected = nlohmann::json::parse(line, nullptr, false);
    const Parsed parsed = parse(line);
    // Stricter than the oracle in two things, which are reported by codes of their own.
    const bool only_ours = !parsed.faults.empty() && parsed.faults.front().code == "lone_surrogate";
    if (only_ours) continue;
    ASSERT_EQ(parsed.ok, !expected.is_discarded()) << line;
    if (!parsed.ok || !expected.is_object() || !parsed.faults.empty()) continue;
    ++accepted;
    size_t members = 0;
    parsed.json.root().for_each_member([&](std::string_view key, JsonLine::Value value) {
      ++members;
      const auto& other = expected.at(std::string(key));
      ASSERT_EQ(nlohmann::json::parse(value.raw()), other);
      if (value.is(JsonLine::Kind::kString)) {
        ASSERT_EQ(value.string(), other.get<std::string>());
      }
      if (value.is(JsonLine::Kind::kNumber)) {
        ASSERT_EQ(value.number(), other.get<double>());
      }
    });
    ASSERT_EQ(members, expected.size());
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace dex::data
