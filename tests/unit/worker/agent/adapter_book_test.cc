#include "worker/agent/adapter_book.h"

#include <gtest/gtest.h>

#include <set>

namespace dex::agent {
namespace {

using dex::v1::Replica;

iv1::DesiredAdapter adapter(const std::string& id, const std::string& hash = "h",
                            const std::string& path = "/a") {
  iv1::DesiredAdapter adapter;
  adapter.set_id(id);
  adapter.set_content_sha256(hash);
  adapter.set_path(path);
  return adapter;
}

iv1::EngineReport::AdapterState state(const std::string& id, Replica::State now,
                                      const std::string& error = "") {
  iv1::EngineReport::AdapterState state;
  state.set_id(id);
  state.set_state(now);
  state.set_error(error);
  return state;
}

iv1::EngineReport::AdapterState no_room(const std::string& id) {
  auto full = state(id, Replica::STATE_FAILED, "no room");
  full.set_no_room(true);
  return full;
}

bool no_requests(const std::string& /*id*/) {
  return false;
}

// "+a": the engine is to load a, "-a": to let it go.
std::string told(const AdapterBook::Frames& frames) {
  std::string all;
  for (const auto& frame : frames)
    all += (frame.set_adapter().present() ? "+" : "-") + frame.set_adapter().id();
  return all;
}

struct Answer {
  int calls = 0;
  base::Status status;
  AdapterBook::Ready sink() {
    return [this](const base::Status& s) {
      ++calls;
      status = s;
    };
  }
};

TEST(AdapterBookTest, FollowsTheSchedulersListOneFrameAChange) {
  AdapterBook book{no_requests};
  EXPECT_EQ(book.set_desired({adapter("a"), adapter("b")}).size(), 2u);
  EXPECT_TRUE(book.set_desired({adapter("a"), adapter("b")}).empty());
  const auto frames = book.set_desired({adapter("b")});
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].set_adapter().id(), "a");
  EXPECT_FALSE(frames[0].set_adapter().present());
  book.reported(state("a", Replica::STATE_UNSPECIFIED));
  ASSERT_EQ(book.status().size(), 1u);
  EXPECT_EQ(book.set_desired({adapter("b", "other content")}).size(), 1u);
}

// Its requests may take long to end; until then the engine says nothing.
TEST(AdapterBookTest, OneThatIsAskedForWhileItLeavesIsLoadedAfterwards) {
  AdapterBook book{no_requests};
  (void)book.set_desired({adapter("a")});
  book.reported(state("a", Replica::STATE_LOADED));
  EXPECT_EQ(told(book.set_desired({})), "-a");
  EXPECT_EQ(book.status()[0].state(), Replica::STATE_UNSPECIFIED) << "nobody sends requests there";
  Answer late;
  EXPECT_EQ(told(book.want(adapter("a"), late.sink())), "");
  EXPECT_EQ(told(book.set_desired({adapter("a")})), "");
  EXPECT_EQ(late.calls, 0) << "the engine would refuse it";
  EXPECT_EQ(told(book.reported(state("a", Replica::STATE_UNSPECIFIED))), "+a");
  book.reported(state("a", Replica::STATE_LOADED));
  EXPECT_TRUE(late.status.ok()) << late.status.to_string();
  EXPECT_EQ(late.calls, 1);
}

TEST(AdapterBookTest, AFreshEngineGetsEverythingAgain) {
  AdapterBook book{no_requests};
  (void)book.set_desired({adapter("a")});
  book.reported(state("a", Replica::STATE_LOADED));
  book.engine_lost();
  EXPECT_EQ(book.status()[0].state(), Replica::STATE_LOADING);
  ASSERT_EQ(book.engine_started().size(), 1u);
}

TEST(AdapterBookTest, AWaiterHearsOnceWhatTheEngineSays) {
  AdapterBook book{no_requests};
  Answer first;
  Answer second;
  EXPECT_EQ(book.want(adapter("a"), first.sink()).size(), 1u) << "loaded on first use";
  EXPECT_TRUE(book.want(adapter("a"), second.sink()).empty()) << "already on its way";
  EXPECT_EQ(first.calls, 0);
  book.reported(state("a", Replica::STATE_LOADED));
  book.reported(state("a", Replica::STATE_LOADED));
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 1);
  EXPECT_TRUE(first.status.ok());
  Answer third;
  (void)book.want(adapter("a"), third.sink());
  EXPECT_EQ(third.calls, 1) << "at once when it is loaded";
}

TEST(AdapterBookTest, SaysWhyAnAdapterCannotBeUsed) {
  AdapterBook book{no_requests};
  Answer unknown;
  EXPECT_TRUE(book.want(adapter("x", "h", ""), unknown.sink()).empty());
  EXPECT_EQ(unknown.status.reason(), "ADAPTER_LOADING");
  Answer other_content;
  (void)book.set_desired({adapter("d", "old")});
  book.reported(state("d", Replica::STATE_LOADED));
  EXPECT_TRUE(book.want(adapter("d", "new", ""), other_content.sink()).empty());
  EXPECT_EQ(other_content.status.reason(), "ADAPTER_LOADING");
  Answer broken;
  (void)book.want(adapter("a"), broken.sink());
  book.reported(state("a", Replica::STATE_FAILED, "truncated"));
  EXPECT_EQ(broken.status.reason(), "ADAPTER_MISMATCH");
  EXPECT_NE(broken.status.message().find("truncated"), std::string::npos);
  Answer again;
  EXPECT_EQ(book.want(adapter("a"), again.sink()).size(), 1u) << "a failed one gets another try";
  book.engine_lost();
  EXPECT_EQ(again.status.reason(), "ENGINE_LOST");
}

// Loaded on first use: a, then b, and a was asked for again.
class FullEngineTest : public testing::Test {
 protected:
  FullEngineTest() {
    for (const char* id : {"a", "b"}) use(id);
    (void)book_.want(adapter("a"), earlier_.sink());
  }
  void use(const std::string& id) {
    EXPECT_EQ(told(book_.want(adapter(id), earlier_.sink())), "+" + id);
    EXPECT_EQ(told(book_.reported(state(id, Replica::STATE_LOADED))), "");
  }
  std::string gone(const std::string& id) {
    return told(book_.reported(state(id, Replica::STATE_UNSPECIFIED)));
  }

  std::set<std::string> busy_;  // have requests
  AdapterBook book_{[this](const std::string& id) { return busy_.contains(id); }};
  Answer earlier_, next_;
};

TEST_F(FullEngineTest, TheLeastRecentlyUsedMakesRoomAndNobodyHearsOfIt) {
  (void)book_.want(adapter("c"), next_.sink());
  EXPECT_EQ(told(book_.reported(no_room("c"))), "-b");
  EXPECT_EQ(next_.calls, 0);
  EXPECT_EQ(gone("b"), "+c") << "only now its bytes are free";
  EXPECT_EQ(told(book_.reported(no_room("c"))), "-a") << "it takes more than b had";
  EXPECT_EQ(gone("a"), "+c");
  book_.reported(state("c", Replica::STATE_LOADED));
  EXPECT_EQ(next_.calls, 1);
  EXPECT_TRUE(next_.status.ok()) << next_.status.to_string();
  ASSERT_EQ(book_.status().size(), 1U);
  EXPECT_EQ(book_.status()[0].id(), "c");
}

TEST_F(FullEngineTest, NoneLeavesThatHasRequestsOrWasAskedFor) {
  busy_ = {"b"};
  EXPECT_EQ(told(book_.set_desired({adapter("a")})), "") << "it is there already";
  (void)book_.want(adapter("c"), next_.sink());
  EXPECT_EQ(told(book_.reported(no_room("c"))), "");
  EXPECT_EQ(next_.status.reason(), "ADAPTER_SLOTS_FULL");
  EXPECT_EQ(next_.status.code(), base::Code::kResourceExhausted);
  busy_.clear();
  Answer again;
  EXPECT_EQ(told(book_.want(adapter("c"), again.sink())), "+c");
  EXPECT_EQ(told(book_.reported(no_room("c"))), "-b");
  EXPECT_EQ(again.calls, 0);
}

TEST_F(FullEngineTest, OneThatLeavesComesBackForWhoWantsItMeanwhile) {
  (void)book_.want(adapter("c"), next_.sink());
  EXPECT_EQ(told(book_.reported(no_room("c"))), "-b");
  Answer back;
  EXPECT_EQ(told(book_.want(adapter("b"), back.sink())), "") << "no frame overtakes the other";
  EXPECT_EQ(gone("b"), "+c+b");
  EXPECT_EQ(back.calls, 0);
  book_.reported(state("c", Replica::STATE_LOADED));
  busy_ = {"c"};
  EXPECT_EQ(told(book_.reported(no_room("b"))), "-a");
  EXPECT_EQ(gone("a"), "+b");
  book_.reported(state("b", Replica::STATE_LOADED));
  EXPECT_TRUE(back.status.ok());
  EXPECT_EQ(back.calls, 1);
}

TEST_F(FullEngineTest, WhatTheSchedulerWantsTakesTheRoomThatComes) {
  EXPECT_EQ(told(book_.set_desired({adapter("a"), adapter("b"), adapter("d")})), "+d");
  EXPECT_EQ(told(book_.reported(no_room("d"))), "");
  bool said = false;
  for (const auto& one : book_.status())
    said = said || (one.id() == "d" && one.state() == Replica::STATE_FAILED && one.no_room());
  EXPECT_TRUE(said);
  EXPECT_EQ(told(book_.set_desired({adapter("a"), adapter("d")})), "-b");
  EXPECT_EQ(gone("b"), "+d");
}

TEST_F(FullEngineTest, AFreshEngineHasRoomForWhoWaited) {
  (void)book_.want(adapter("c"), next_.sink());
  EXPECT_EQ(told(book_.reported(no_room("c"))), "-b");
  book_.engine_lost();
  EXPECT_EQ(next_.status.reason(), "ENGINE_LOST");
  EXPECT_EQ(told(book_.engine_started()), "");
  use("b");
}

}  // namespace
}  // namespace dex::agent
