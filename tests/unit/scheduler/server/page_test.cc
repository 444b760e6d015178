#include "scheduler/server/page.h"

#include <gtest/gtest.h>

namespace dex::server {
namespace {

TEST(PageTest, SizeIsTheStandardUnlessAskedAndNeverOutsideItsRange) {
  EXPECT_EQ(*page_size(0), 20);
  EXPECT_EQ(*page_size(0, 100), 100);
  EXPECT_EQ(*page_size(1), 1);
  EXPECT_EQ(*page_size(1000), 1000);
  for (const int32_t wrong : {-1, 1001, INT32_MIN, INT32_MAX}) {
    const auto size = page_size(wrong);
    EXPECT_EQ(size.status().reason(), "VALUE_OUT_OF_RANGE") << wrong;
    EXPECT_EQ(size.status().violations().at(0).field, "page_size");
    EXPECT_NE(size.status().message().find(std::to_string(wrong)), std::string::npos);
  }
}

TEST(PageTest, ATokenLeadsBackToItsRow) {
  const auto start = parse_page_token("");
  EXPECT_EQ(start->before_ms, -1);
  // Ids of adapters hold colons; any id comes back whole.
  for (const std::string id : {"file-01jd", "ft:smol:default:x~y:01jd"}) {
    const auto cursor = parse_page_token(page_token(1'764'000'000'123, id));
    ASSERT_TRUE(cursor.ok()) << id;
    EXPECT_EQ(cursor->before_ms, 1'764'000'000'123);
    EXPECT_EQ(cursor->before_id, id);
  }
}

TEST(PageTest, WhatNoListHasGivenIsRefused) {
  for (const char* token : {"nonsense", "12", "12~", "~id", "-1~id", "12x~id", " 12~id", "1.5~id",
                            "99999999999999999999~id"}) {
    const auto cursor = parse_page_token(token);
    EXPECT_EQ(cursor.status().reason(), "INVALID_CURSOR") << token;
    EXPECT_EQ(cursor.status().violations().at(0).field, "page_token") << token;
  }
}

TEST(PageTest, AListGoesOnBehindATokenOrAnItem) {
  const auto found = [](const std::string& id) -> base::Result<int64_t> {
    if (id == "away") return base::unavailable("STORE_UNAVAILABLE", "");
    if (id != "file-1") return base::not_found("RESOURCE_NOT_FOUND", "");
    return 77;
  };
  EXPECT_EQ(list_cursor("", "", found)->before_ms, -1);
  EXPECT_EQ(list_cursor("", "file-1", found)->before_ms, 77);
  EXPECT_EQ(list_cursor("", "file-1", found)->before_id, "file-1");
  EXPECT_EQ(list_cursor("5~file-2", "", found)->before_ms, 5);
  EXPECT_EQ(list_cursor("5~file-2", "file-1", found).status().reason(), "CONFLICTING_FIELDS");
  EXPECT_EQ(list_cursor("", "file-2", found).status().reason(), "INVALID_CURSOR");
  EXPECT_EQ(list_cursor("", "away", found).status().reason(), "STORE_UNAVAILABLE");
}

}  // namespace
}  // namespace dex::server
