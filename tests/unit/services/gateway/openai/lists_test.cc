#include "services/gateway/openai/lists.h"

#include <gtest/gtest.h>

namespace dex::gateway::openai {
namespace {

http::Request with(std::vector<std::pair<std::string, std::string>> query) {
  http::Request request;
  request.query = std::move(query);
  return request;
}

TEST(ListQueryTest, TakesLimitAndAfterAndNamesTheRest) {
  const auto query = read_list_query(with({{"limit", "7"}, {"after", "file-1"}}), {});
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(query.value().limit, 7);
  EXPECT_EQ(query.value().after, "file-1");
  EXPECT_EQ(read_list_query(with({}), {}).value().limit, 20);
  for (const char* wrong : {"0", "1001", "-1", "7x", "", "99999999999999"})
    EXPECT_EQ(read_list_query(with({{"limit", wrong}}), {}).status().reason(), "VALUE_OUT_OF_RANGE")
        << wrong;
  EXPECT_EQ(read_list_query(with({{"purpose", "x"}}), {}).status().reason(), "UNKNOWN_FIELD");
  EXPECT_TRUE(read_list_query(with({{"purpose", "x"}}), {"purpose"}).ok());
  EXPECT_EQ(read_list_query(with({{"after", "a"}, {"after", "b"}}), {}).status().reason(),
            "INVALID_FIELD");
}

TEST(ListQueryTest, MetadataComesInPairs) {
  EXPECT_TRUE(
      read_list_query(with({{"metadata[a]", "1"}, {"metadata[b]", "2"}}), {"metadata"}).ok());
  EXPECT_FALSE(read_list_query(with({{"metadata", "1"}}), {"metadata"}).ok());
  EXPECT_FALSE(read_list_query(with({{"metadata[a]", "1"}}), {}).ok());
}

TEST(ListObjectTest, NamesItsEnds) {
  const json list = list_object(json::parse(R"([{"id": "a"}, {"id": "b"}])"), true);
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("first_id"), "a");
  EXPECT_EQ(list.at("last_id"), "b");
  EXPECT_EQ(list.at("has_more"), true);
  EXPECT_TRUE(list_object(json::array(), false).at("first_id").is_null());
  EXPECT_EQ(list_object(json::array(), false).at("data"), json::array());
}

}  // namespace
}  // namespace dex::gateway::openai
