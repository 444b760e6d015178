// Aliases: names that move from adapter to adapter once every worker has the next one.
#include <gmock/gmock.h>

#include <thread>

#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AliasTest : public SchedulerTest {
 protected:
  AliasTest() : first_(train_adapter()), second_(train_adapter()) {}

  v1::Adapter adapter(const std::string& name) {
    v1::GetAdapterRequest request;
    request.set_id(name);
    const auto adapter = call(*adapters_, &AdapterStub::GetAdapter, request);
    EXPECT_TRUE(adapter.ok()) << adapter.status().to_string();
    return adapter.ok() ? *adapter : v1::Adapter();
  }
  // The worker has these adapters.
  void hold(const std::vector<std::string>& ids) {
    std::vector<iv1::AdapterStatus> held;
    for (const std::string& id : ids) {
      auto& status = held.emplace_back();
      status.set_id(id);
      status.set_content_sha256(adapter(id).content_sha256());
      status.set_state(v1::Replica::STATE_LOADED);
    }
    report_engine("w1", std::move(held));
  }
  static v1::SetAdapterAliasRequest to(const std::string& adapter,
                                       const std::string& alias = "live") {
    v1::SetAdapterAliasRequest request;
    request.set_alias(alias);
    request.set_adapter(adapter);
    request.set_wait_seconds(20);
    return request;
  }
  base::Result<v1::AdapterAlias> set(const v1::SetAdapterAliasRequest& request,
                                     bool* replayed = nullptr) {
    return call(*adapters_, &AdapterStub::SetAdapterAlias, request, 30'000, replayed);
  }
  base::Result<v1::AdapterAlias> remove(const std::string& alias, const std::string& etag = "") {
    v1::DeleteAdapterAliasRequest request;
    request.set_alias(alias);
    request.set_etag(etag);
    return call(*adapters_, &AdapterStub::DeleteAdapterAlias, request);
  }
  base::Status delete_adapter(const std::string& id) {
    v1::UnloadAdapterRequest unload;
    unload.set_id(id);
    EXPECT_TRUE(call(*adapters_, &AdapterStub::UnloadAdapter, unload).ok());
    v1::DeleteAdapterRequest request;
    request.set_id(id);
    return call(*adapters_, &AdapterStub::DeleteAdapter, request).status();
  }
  // Whose job had a gate that it did not pass.
  std::string train_blocked() {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    iv1::AttemptResult result;
    result.mutable_adapter()->set_artifact_class("KVO");
    result.set_promotable(false);
    auto& gate = *result.add_gate_results();
    gate.set_gate("not-worse");
    gate.set_condition("held_out.loss <= 0");
    gate.set_on_fail("BLOCK_ALIAS");
    EXPECT_EQ(publish_files(claimed(), "w1",
                            {{"adapter_config.json", "{}"}, {"adapter_model.safetensors", "x"}},
                            std::move(result)),
              "SUCCEEDED");
    return get(job->id()).fine_tuned_model();
  }

  const std::string first_, second_;
};

TEST_F(AliasTest, PointsToAnAdapterThatEveryWorkerHas) {
  report_engine("w1");
  base::Result<v1::AdapterAlias> made = base::internal("");
  std::jthread setting([&] { made = set(to(first_)); });
  ASSERT_TRUE(support::eventually(
      [&] { return adapter(first_).desired() == v1::Adapter::DESIRED_DEVICE; }));
  EXPECT_THAT(adapter(first_).aliases(), testing::IsEmpty()) << "not before the worker has it";
  hold({first_});
  setting.join();
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->alias(), "live");
  EXPECT_EQ(made->adapter(), first_);
  EXPECT_EQ(made->base_model(), "small-model");
  EXPECT_EQ(made->content_sha256(), adapter(first_).content_sha256());
  EXPECT_EQ(made->version(), adapter(first_).version());
  EXPECT_FALSE(made->etag().empty());
  EXPECT_EQ(adapter("live").id(), first_);
  EXPECT_THAT(adapter(first_).aliases(), ElementsAre("live"));
}

// What is not loaded everywhere moves nothing.
TEST_F(AliasTest, StaysWhileAWorkerLacksTheNextOne) {
  hold({first_});
  ASSERT_TRUE(set(to(first_)).ok());
  auto request = to(second_);
  request.set_wait_seconds(0.2);
  const auto late = set(request).status();
  EXPECT_EQ(late.reason(), "ADAPTER_LOADING");
  EXPECT_THAT(late.message(), HasSubstr("w1"));
  EXPECT_EQ(adapter("live").id(), first_);

  iv1::AdapterStatus failed;
  failed.set_id(second_);
  failed.set_content_sha256(adapter(second_).content_sha256());
  failed.set_state(v1::Replica::STATE_FAILED);
  failed.set_error("rank 7 is missing");
  report_engine("w1", {failed});
  const auto broken = set(to(second_)).status();
  EXPECT_EQ(broken.reason(), "ADAPTER_NOT_PROVEN");
  EXPECT_EQ(adapter("live").id(), first_);
}

TEST_F(AliasTest, RemembersWhereItPointed) {
  hold({first_, second_});
  ASSERT_TRUE(set(to(first_)).ok());
  const auto moved = set(to(second_));
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  ASSERT_EQ(moved->targets_size(), 2);
  EXPECT_EQ(moved->targets(0).adapter(), second_);
  EXPECT_EQ(moved->targets(1).adapter(), first_);
  EXPECT_THAT(adapter(first_).aliases(), testing::IsEmpty());
  const auto same = set(to("live"));  // an alias is as good as an id: this one's own
  ASSERT_TRUE(same.ok()) << same.status().to_string();
  EXPECT_EQ(same->etag(), moved->etag()) << "no move";
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(set(to(i % 2 == 0 ? first_ : second_)).ok());
  const auto list =
      call(*adapters_, &AdapterStub::ListAdapterAliases, v1::ListAdapterAliasesRequest{});
  ASSERT_EQ(list->aliases_size(), 1);
  EXPECT_EQ(list->aliases(0).targets_size(), 20);
  EXPECT_EQ(list->aliases(0).adapter(), first_);
}

TEST_F(AliasTest, ListsInPagesTheNewestFirst) {
  hold({first_});
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(set(to(first_, name)).ok());
  v1::ListAdapterAliasesRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  for (int pages = 0; pages < 3; ++pages) {
    const auto page = call(*adapters_, &AdapterStub::ListAdapterAliases, request);
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    for (const auto& alias : page->aliases()) names.push_back(alias.alias());
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  EXPECT_THAT(names, ElementsAre("c", "b", "a"));
  EXPECT_THAT(adapter(first_).aliases(), ElementsAre("a", "b", "c"));
}

TEST_F(AliasTest, AStaleEtagMovesNothing) {
  hold({first_, second_});
  const std::string old = set(to(first_))->etag();
  auto request = to(second_);
  request.set_etag(old);
  ASSERT_TRUE(set(request).ok());
  request.set_adapter(first_);
  const auto stale = set(request).status();
  EXPECT_EQ(stale.reason(), "ETAG_MISMATCH");
  EXPECT_EQ(remove("live", old).status().reason(), "ETAG_MISMATCH");
  EXPECT_EQ(adapter("live").id(), second_);
  ASSERT_TRUE(remove("live").ok());
  ASSERT_TRUE(set(to(first_)).ok());
  request.set_adapter(second_);
  EXPECT_EQ(set(request).status().reason(), "ETAG_MISMATCH")
      << "one deleted and made anew is another";
  auto fresh = to(second_);
  fresh.set_create_only(true);
  EXPECT_EQ(set(fresh).status().reason(), "NAME_TAKEN");
  EXPECT_EQ(adapter("live").id(), first_);
}

TEST_F(AliasTest, ARequestIdCountsOnce) {
  hold({first_, second_});
  auto request = to(first_);
  request.set_request_id("once");
  ASSERT_TRUE(set(request).ok());
  ASSERT_TRUE(set(to(second_)).ok());
  bool replayed = false;
  const auto again = set(request, &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(adapter("live").id(), second_) << "a repeat moves nothing";
  request.set_adapter(second_);
  EXPECT_EQ(set(request).status().reason(), "IDEMPOTENCY_CONFLICT");

  v1::DeleteAdapterAliasRequest gone;
  gone.set_alias("live");
  gone.set_request_id("gone");
  ASSERT_TRUE(call(*adapters_, &AdapterStub::DeleteAdapterAlias, gone).ok());
  const auto twice = call(*adapters_, &AdapterStub::DeleteAdapterAlias, gone, 20'000, &replayed);
  ASSERT_TRUE(twice.ok()) << twice.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(twice->alias(), "live");
}

TEST_F(AliasTest, WhatItPointsToIsNotDeleted) {
  hold({first_, second_});
  ASSERT_TRUE(set(to(first_)).ok());
  const auto used = delete_adapter(first_);
  EXPECT_EQ(used.reason(), "ADAPTER_IN_USE");
  EXPECT_THAT(used.message(), HasSubstr("alias 'live'"));
  ASSERT_TRUE(set(to(second_)).ok());
  EXPECT_TRUE(delete_adapter(first_).ok());
  EXPECT_EQ(delete_adapter(second_).reason(), "ADAPTER_IN_USE");
  const auto gone = remove("live");
  ASSERT_TRUE(gone.ok()) << gone.status().to_string();
  EXPECT_EQ(gone->adapter(), second_);
  EXPECT_TRUE(delete_adapter(second_).ok());
  EXPECT_EQ(remove("live").status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(AliasTest, ANameIsNobodyElses) {
  hold({first_});
  for (const std::string name : {"small-model", "none", "Live", ".x", "a b", "a:b", "a/b"}) {
    expect_refused(set(to(first_, name)).status(), "INVALID_FIELD", "alias");
  }
  expect_refused(set(to(first_, std::string(65, 'a'))).status(), "INVALID_FIELD", "alias");
  EXPECT_EQ(set(to(first_, "")).status().reason(), "MISSING_FIELD");
  EXPECT_TRUE(set(to(first_, std::string(64, 'a'))).ok());
  EXPECT_EQ(set(to("ft:small-model:default::nobodys")).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(set(to("nobodys")).status().reason(), "RESOURCE_NOT_FOUND");
  v1::GetAdapterRequest missing;
  missing.set_id("live");
  EXPECT_EQ(call(*adapters_, &AdapterStub::GetAdapter, missing).status().reason(),
            "RESOURCE_NOT_FOUND");
}

TEST_F(AliasTest, AnAdapterWhoseGateBlocksNeedsAnOverride) {
  const std::string blocked = train_blocked();
  hold({blocked});
  const auto refused = set(to(blocked)).status();
  EXPECT_EQ(refused.reason(), "GATE_NOT_PASSED");
  EXPECT_EQ(refused.code(), base::Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("not-worse (held_out.loss <= 0)"));
  EXPECT_EQ(adapter(blocked).desired(), v1::Adapter::DESIRED_ABSENT) << "nor is it loaded for it";
  auto request = to(blocked);
  request.set_override_gates(true);
  const auto set_all_the_same = set(request);
  ASSERT_TRUE(set_all_the_same.ok()) << set_all_the_same.status().to_string();
  EXPECT_TRUE(set_all_the_same->targets(0).gates_overridden());
}

TEST_F(AliasTest, ValidationMovesAndLoadsNothing) {
  auto request = to(first_);
  request.set_validate_only(true);
  const auto would = set(request);
  ASSERT_TRUE(would.ok()) << would.status().to_string();
  EXPECT_EQ(would->adapter(), first_);
  EXPECT_EQ(would->etag(), "");
  EXPECT_EQ(adapter(first_).desired(), v1::Adapter::DESIRED_ABSENT);
  EXPECT_EQ(remove("live").status().reason(), "RESOURCE_NOT_FOUND");
}

// The etag names the revision: from there on every snapshot has the alias with all that its new
// adapter is.
TEST_F(AliasTest, ItsRouteMovesInOneRevision) {
  hold({first_, second_});
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(60));
  const auto reader = routes_->WatchRoutes(&context, iv1::WatchRoutesRequest{});
  iv1::RouteSnapshot snapshot;
  ASSERT_TRUE(reader->Read(&snapshot));
  EXPECT_EQ(snapshot.aliases_size(), 0);
  for (const std::string& target : {first_, second_, first_}) {
    const auto moved = set(to(target));
    ASSERT_TRUE(moved.ok()) << moved.status().to_string();
    const int64_t revision = std::stoll(moved->etag());
    while (snapshot.revision() < revision) ASSERT_TRUE(reader->Read(&snapshot));
    ASSERT_EQ(snapshot.aliases_size(), 1);
    EXPECT_EQ(snapshot.aliases(0).name(), "live");
    EXPECT_EQ(snapshot.aliases(0).adapter().id(), target);
    EXPECT_EQ(snapshot.aliases(0).adapter().content_sha256(), adapter(target).content_sha256());
    EXPECT_EQ(snapshot.aliases(0).adapter().tenant(), "default");
    EXPECT_TRUE(
        std::filesystem::exists(directory_ / "data" / snapshot.aliases(0).adapter().path()));
  }
  ASSERT_TRUE(remove("live").ok());
  while (snapshot.aliases_size() > 0) ASSERT_TRUE(reader->Read(&snapshot));
  context.TryCancel();
}

TEST_F(AliasTest, OutlivesItsScheduler) {
  hold({first_});
  ASSERT_TRUE(set(to(first_)).ok());
  restart();
  EXPECT_EQ(adapter("live").id(), first_);
}

}  // namespace
}  // namespace dex::server
