#include "worker/agent/adapter_book.h"

#include <gtest/gtest.h>

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
  AdapterBook book;
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

TEST(AdapterBookTest, AFreshEngineGetsEverythingAgain) {
  AdapterBook book;
  (void)book.set_desired({adapter("a")});
  book.reported(state("a", Replica::STATE_LOADED));
  book.engine_lost();
  EXPECT_EQ(book.status()[0].state(), Replica::STATE_LOADING);
  ASSERT_EQ(book.engine_started().size(), 1u);
}

TEST(AdapterBookTest, AWaiterHearsOnceWhatTheEngineSays) {
  AdapterBook book;
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
  AdapterBook book;
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

}  // namespace
}  // namespace dex::agent
