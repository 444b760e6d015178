#include "services/gateway/routing/route_table.h"

#include <gmock/gmock.h>

namespace dex::gateway {
namespace {

using ::testing::HasSubstr;

internal::v1::RouteSnapshot snapshot() {
  internal::v1::RouteSnapshot made;
  made.set_revision(7);
  made.add_bases("smol");
  made.add_bases("large");
  const auto route = [&](const char* worker, const char* base) {
    auto* one = made.add_routes();
    one->set_worker(worker);
    one->set_inference_address(std::string(worker) + ":1");
    one->set_base(base);
    return one;
  };
  route("w1", "smol")->set_waiting(3);
  route("w2", "smol")->add_adapters("ft:smol:default:a:1");
  const auto adapter = [&](const char* id, const char* base, const char* tenant) {
    auto* one = made.add_adapters();
    one->set_id(id);
    one->set_base(base);
    one->set_tenant(tenant);
    one->set_content_sha256(std::string("hash of ") + id);
  };
  adapter("ft:smol:default:a:1", "smol", "default");
  adapter("ft:large:default:b:2", "large", "default");
  adapter("ft:smol:other:c:3", "smol", "other");
  for (const auto& one : made.adapters()) {
    auto* alias = made.add_aliases();
    alias->set_name(one.base() == "large" ? "wide" : "live");
    *alias->mutable_adapter() = one;
  }
  return made;
}

class RouteTableTest : public ::testing::Test {
 protected:
  base::Result<Target> resolve(std::string_view model, std::string_view adapter = "") {
    return table_.resolve("default", model, adapter);
  }
  std::string reason(std::string_view model, std::string_view adapter = "") {
    return resolve(model, adapter).status().reason();
  }
  const RouteTable table_{snapshot()};
};

TEST_F(RouteTableTest, ABaseAnswersItself) {
  const auto target = resolve("smol");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target.value().base, "smol");
  EXPECT_EQ(target.value().adapter, "");
}

TEST_F(RouteTableTest, AnAdapterIsFoundUnderEitherField) {
  for (const auto& target : {resolve("ft:smol:default:a:1"), resolve("", "ft:smol:default:a:1"),
                             resolve("smol", "ft:smol:default:a:1")}) {
    ASSERT_TRUE(target.ok()) << target.status().to_string();
    EXPECT_EQ(target.value().base, "smol");
    EXPECT_EQ(target.value().adapter, "ft:smol:default:a:1");
    EXPECT_EQ(target.value().content_sha256, "hash of ft:smol:default:a:1");
  }
}

TEST_F(RouteTableTest, AnAliasIsWhatItPointsToInItsOwnTenant) {
  for (const auto& target : {resolve("live"), resolve("", "live"), resolve("smol", "live")}) {
    ASSERT_TRUE(target.ok()) << target.status().to_string();
    EXPECT_EQ(target.value().base, "smol");
    EXPECT_EQ(target.value().adapter, "ft:smol:default:a:1");
    EXPECT_EQ(target.value().content_sha256, "hash of ft:smol:default:a:1");
    EXPECT_EQ(target.value().alias, "live");
  }
  EXPECT_EQ(resolve("ft:smol:default:a:1").value().alias, "") << "it was named by its id";
  EXPECT_EQ(resolve("live", "none").value().adapter, "");
  EXPECT_EQ(reason("smol", "wide"), "ADAPTER_MISMATCH");
  EXPECT_EQ(table_.resolve("other", "live", "").value().adapter, "ft:smol:other:c:3");
  EXPECT_EQ(table_.resolve("other", "wide", "").status().reason(), "MODEL_NOT_FOUND");
  EXPECT_EQ(reason("default/live"), "MODEL_NOT_FOUND");
}

// Its adapter may have been published after the snapshot's list was read.
TEST_F(RouteTableTest, AnAliasNeedsNoAdapterInTheList) {
  auto routes = snapshot();
  routes.clear_adapters();
  const RouteTable table(std::move(routes));
  EXPECT_EQ(table.resolve("default", "live", "").value().adapter, "ft:smol:default:a:1");
}

TEST_F(RouteTableTest, NoneMeansTheBaseOfTheModel) {
  EXPECT_EQ(resolve("smol", "none").value().adapter, "");
  EXPECT_EQ(resolve("ft:smol:default:a:1", "none").value().base, "smol");
  EXPECT_EQ(resolve("ft:smol:default:a:1", "none").value().adapter, "");
  EXPECT_EQ(reason("", "none"), "MISSING_FIELD");
}

TEST_F(RouteTableTest, TheBaseNeverAnswersForAMissingAdapter) {
  EXPECT_EQ(reason("smol", "ft:smol:default:gone:9"), "MODEL_NOT_FOUND");
  EXPECT_EQ(reason("ft:smol:default:gone:9"), "MODEL_NOT_FOUND");
  EXPECT_EQ(reason("unknown"), "MODEL_NOT_FOUND");
  const auto status = resolve("unknown").status();
  EXPECT_EQ(status.code(), base::Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("'unknown'"));
  EXPECT_THAT(status.message(), HasSubstr("smol, large"));
}

TEST_F(RouteTableTest, AnotherTenantsAdapterLooksLikeAMissingOne) {
  const auto foreign = resolve("ft:smol:other:c:3").status();
  const auto missing = resolve("ft:smol:other:c:4").status();
  EXPECT_EQ(foreign.reason(), missing.reason());
  EXPECT_EQ(foreign.message().size(), missing.message().size());
  EXPECT_TRUE(table_.resolve("other", "ft:smol:other:c:3", "").ok());
}

TEST_F(RouteTableTest, AnAdapterOfAnotherBaseIsAMismatch) {
  EXPECT_EQ(reason("smol", "ft:large:default:b:2"), "ADAPTER_MISMATCH");
  EXPECT_EQ(reason("ft:smol:default:a:1", "ft:large:default:b:2"), "ADAPTER_MISMATCH");
  EXPECT_EQ(reason("", ""), "MISSING_FIELD");
}

TEST_F(RouteTableTest, WorkersAreThoseThatServeTheBase) {
  const auto workers = table_.workers(resolve("ft:smol:default:a:1").value());
  ASSERT_EQ(workers.size(), 2);
  EXPECT_FALSE(workers[0].holds_adapter);
  EXPECT_EQ(workers[0].reported_load, 3);
  EXPECT_TRUE(workers[1].holds_adapter);
  EXPECT_TRUE(table_.workers(resolve("large").value()).empty());
  EXPECT_TRUE(table_.has_address("w2:1"));
  EXPECT_FALSE(table_.has_address("w3:1"));
}

TEST_F(RouteTableTest, AWorkerOfTwoBasesIsOneWorker) {
  auto routes = snapshot();
  auto* again = routes.add_routes();
  again->set_worker("w1");
  again->set_inference_address("w1:1");
  again->set_base("large");
  const RouteTable table(std::move(routes));
  const auto workers = table.every_worker();
  ASSERT_EQ(workers.size(), 2);
  EXPECT_EQ(workers[0].id, "w1");
  EXPECT_EQ(workers[0].address, "w1:1");
  EXPECT_EQ(workers[1].id, "w2");
  EXPECT_TRUE(RouteTable().every_worker().empty());
}

}  // namespace
}  // namespace dex::gateway
