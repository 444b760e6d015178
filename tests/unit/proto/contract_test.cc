// dex.v1 and dex.internal.v1 only grow (proto/README.md): what was promised still holds.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iostream>

#include "tests/unit/proto/compare.h"
#include "tests/unit/proto/contract_file.h"

namespace dex::contract {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ProtoContractTest, WhatWasPromisedStillHolds) {
  const Comparison found = compare(promised_contract(), current_contract());
  for (const auto& fault : found.breaks) ADD_FAILURE() << fault;
  if (!found.breaks.empty()) {
    std::cout << "A change that clients of today would notice. Give the new thing a new number and "
                 "name, and reserve those of the old one.\n";
  }
  if (!found.additions.empty()) {
    std::cout << found.additions.size()
              << " new, not promised yet, the first: " << found.additions.front()
              << "\nPromise them: build/tests/dex-proto-record, then commit "
                 "tests/data/proto/contract.txt.\n";
  }
}

// What can be done to one message, enum and service, and whether it breaks. Numbers are those of
// kPromised.
const Listing kPromised = {
    "a.M = message",
    "a.M.plain = 1 int64",
    "a.M.known = 2 optional int64",
    "a.M.one = 3 oneof choice string",
    "a.M.many = 4 repeated a.N",
    "a.M reserved 9",
    "a.M reserved old",
    "a.E = enum",
    "a.E.E_ZERO = 0",
    "a.E.E_ONE = 1",
    "a.S = service",
    "a.S.Get = rpc (a.M) returns (a.N)",
};

Listing with(const std::string& line, const std::string& instead) {
  Listing changed = kPromised;
  const auto found = std::find(changed.begin(), changed.end(), line);
  EXPECT_NE(found, changed.end()) << line;
  *found = instead;
  return changed;
}
Listing without(const std::string& line, const Listing& more = {}) {
  Listing changed = kPromised;
  EXPECT_EQ(std::erase(changed, line), 1u) << line;
  changed.insert(changed.end(), more.begin(), more.end());
  return changed;
}
std::vector<std::string> breaks(const Listing& now) {
  return compare(kPromised, now).breaks;
}

TEST(ProtoCompareTest, TheSameInAnotherOrderIsTheSame) {
  Listing turned(kPromised.rbegin(), kPromised.rend());
  EXPECT_THAT(breaks(turned), IsEmpty());
  EXPECT_THAT(compare(kPromised, turned).additions, IsEmpty());
}

TEST(ProtoCompareTest, NewThingsAreAdditions) {
  Listing more = kPromised;
  const Listing news = {"a.M.fresh = 5 string", "a.E.E_TWO = 2", "a.T = message",
                        "a.S.Put = rpc (a.M) returns (a.M)", "a.M reserved 10"};
  more.insert(more.end(), news.begin(), news.end());
  EXPECT_THAT(breaks(more), IsEmpty());
  EXPECT_EQ(compare(kPromised, more).additions, news);
}

TEST(ProtoCompareTest, EachChangeOfAPromisedLineBreaks) {
  const std::string plain = "a.M.plain = 1 int64";
  EXPECT_THAT(breaks(with(plain, "a.M.plain = 7 int64")),
              ElementsAre("a.M.plain: was '1 int64', is '7 int64'"));
  EXPECT_THAT(breaks(with(plain, "a.M.plain = 1 uint64")),
              ElementsAre("a.M.plain: was '1 int64', is '1 uint64'"));
  EXPECT_THAT(breaks(with(plain, "a.M.plain = 1 optional int64")), testing::SizeIs(1));
  EXPECT_THAT(breaks(with(plain, "a.M.plain = 1 oneof choice int64")), testing::SizeIs(1));
  EXPECT_THAT(breaks(with("a.M.known = 2 optional int64", "a.M.known = 2 int64")),
              testing::SizeIs(1));
  EXPECT_THAT(breaks(with("a.M.one = 3 oneof choice string", "a.M.one = 3 optional string")),
              testing::SizeIs(1));
  EXPECT_THAT(breaks(with("a.M.many = 4 repeated a.N", "a.M.many = 4 a.N")), testing::SizeIs(1));
  EXPECT_THAT(breaks(with("a.E.E_ONE = 1", "a.E.E_ONE = 2")), testing::SizeIs(1));
  EXPECT_THAT(
      breaks(with("a.S.Get = rpc (a.M) returns (a.N)", "a.S.Get = rpc (a.M) returns (stream a.N)")),
      testing::SizeIs(1));
}

TEST(ProtoCompareTest, ARenamedThingIsRecognisedByItsNumber) {
  EXPECT_THAT(breaks(with("a.M.plain = 1 int64", "a.M.simple = 1 int64")),
              ElementsAre("a.M.plain: its number 1 is a.M.simple now"));
  EXPECT_THAT(breaks(with("a.E.E_ONE = 1", "a.E.E_FIRST = 1")),
              ElementsAre("a.E.E_ONE: its number 1 is a.E.E_FIRST now"));
}

TEST(ProtoCompareTest, WhatGoesMustLeaveItsNumberAndItsNameReserved) {
  const std::string plain = "a.M.plain = 1 int64";
  EXPECT_THAT(breaks(without(plain)), ElementsAre("a.M.plain: is gone; reserve 1 and \"plain\""));
  EXPECT_THAT(breaks(without(plain, {"a.M reserved 1"})),
              ElementsAre("a.M.plain: is gone; reserve \"plain\""));
  EXPECT_THAT(breaks(without(plain, {"a.M reserved plain"})),
              ElementsAre("a.M.plain: is gone; reserve 1"));
  EXPECT_THAT(breaks(without(plain, {"a.M reserved 1", "a.M reserved plain"})), IsEmpty());
  EXPECT_THAT(breaks(without("a.E.E_ONE = 1", {"a.E reserved 1", "a.E reserved E_ONE"})),
              IsEmpty());
}

TEST(ProtoCompareTest, WhatCannotBeReservedStays) {
  EXPECT_THAT(breaks(without("a.S.Get = rpc (a.M) returns (a.N)")),
              ElementsAre(HasSubstr("a.S.Get: the rpc")));
  EXPECT_THAT(breaks(without("a.S = service")), ElementsAre("a.S: the service is gone"));
  EXPECT_THAT(breaks(without("a.M reserved 9")),
              ElementsAre("a.M reserved 9: is no longer reserved"));
  EXPECT_THAT(breaks(without("a.M reserved old", {"a.M.old = 5 string"})),
              ElementsAre("a.M reserved old: is no longer reserved"));
}

TEST(ProtoListingTest, NamesEverythingThatCountsOnce) {
  google::protobuf::FileDescriptorSet set;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        file {
          name: "a.proto"
          package: "a"
          syntax: "proto3"
          message_type {
            name: "M"
            field { name: "plain" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
            field {
              name: "known"
              number: 2
              type: TYPE_INT64
              label: LABEL_OPTIONAL
              proto3_optional: true
              oneof_index: 1
            }
            field { name: "one" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
            field {
              name: "many"
              number: 4
              type_name: ".a.M.E"
              type: TYPE_ENUM
              label: LABEL_REPEATED
            }
            field {
              name: "pairs"
              number: 5
              type_name: ".a.M.PairsEntry"
              type: TYPE_MESSAGE
              label: LABEL_REPEATED
            }
            field {
              name: "self"
              number: 6
              type_name: ".a.M"
              type: TYPE_MESSAGE
              label: LABEL_OPTIONAL
            }
            oneof_decl { name: "choice" }
            oneof_decl { name: "_known" }
            reserved_range { start: 8 end: 10 }
            reserved_name: "old"
            nested_type {
              name: "PairsEntry"
              field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
              field { name: "value" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
              options { map_entry: true }
            }
            enum_type {
              name: "E"
              value { name: "E_ZERO" number: 0 }
              reserved_range { start: 3 end: 3 }
            }
          }
          service {
            name: "S"
            method { name: "Put" input_type: ".a.M" output_type: ".a.M" client_streaming: true }
          }
        }
        file {
          name: "b.proto"
          package: "other"
          syntax: "proto3"
          message_type { name: "Not" }
        }
      )pb",
      &set));
  EXPECT_THAT(list_contract(set, "a"),
              ElementsAre("a.S = service", "a.S.Put = rpc (stream a.M) returns (a.M)",
                          "a.M = message", "a.M.plain = 1 int64", "a.M.known = 2 optional int64",
                          "a.M.one = 3 oneof choice string", "a.M.many = 4 repeated a.M.E",
                          "a.M.pairs = 5 map<string, double>", "a.M.self = 6 a.M", "a.M reserved 8",
                          "a.M reserved 9", "a.M reserved old", "a.M.E = enum", "a.M.E.E_ZERO = 0",
                          "a.M.E reserved 3"));
}

}  // namespace
}  // namespace dex::contract
