// Who may have adapters served, by what name, and on which workers (api.md §12: C31, C38, C44).
#include <filesystem>
#include <initializer_list>
#include <string>

#include "scheduler/server/adapters.h"
#include "scheduler/server/aliases.h"
#include "services/auth/authenticator.h"
#include "services/base/clock.h"
#include "services/base/random.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {
namespace {

using auth::Scope;

class AdapterDoorsTest : public SurfaceTest {
 protected:
  AdapterDoorsTest() : id_(train_adapter()) {}

  v1::Adapter adapter() {
    v1::GetAdapterRequest request;
    request.set_id(id_);
    const auto found = call(*adapters_, &AdapterStub::GetAdapter, request);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : v1::Adapter();
  }
  base::Result<v1::LoadAdapterResponse> load(const std::string& id, double wait_seconds) {
    v1::LoadAdapterRequest request;
    request.set_id(id);
    request.set_wait_seconds(wait_seconds);
    return call(*adapters_, &AdapterStub::LoadAdapter, request, 30'000);
  }
  iv1::AdapterStatus loaded() {
    iv1::AdapterStatus status;
    status.set_id(id_);
    status.set_content_sha256(adapter().content_sha256());
    status.set_state(v1::Replica::STATE_LOADED);
    return status;
  }

  const std::string id_;
};

TEST_F(AdapterDoorsTest, AWorkerThatJoinsLaterIsToldOfWhatIsWantedAndCounts) {
  report_engine("w1", {loaded()});
  ASSERT_TRUE(load(id_, 20).ok());

  enlist("w2");
  const auto told = report_engine("w2");  // which knows of nothing yet
  ASSERT_EQ(told.desired_size(), 1);
  EXPECT_EQ(told.desired(0).id(), id_);
  EXPECT_EQ(told.desired(0).content_sha256(), adapter().content_sha256());
  const auto missing = load(id_, 0.2).status();
  EXPECT_EQ(missing.reason(), "ADAPTER_LOADING") << missing.to_string();
  EXPECT_NE(missing.message().find("w2"), std::string::npos) << missing.message();

  report_engine("w2", {loaded()}, told.desired_revision());
  const auto everywhere = load(id_, 20);
  ASSERT_TRUE(everywhere.ok()) << everywhere.status().to_string();
  EXPECT_EQ(everywhere->adapter().replicas_size(), 2);

  // And one that comes back with nothing, as after a crash, is told again.
  EXPECT_EQ(report_engine("w2").desired_size(), 1);
}

TEST_F(AdapterDoorsTest, PathsAndAddressesAreNoAdapters) {
  report_engine("w1");
  const std::string real = directory_ / "data/jobs/default" / adapter().job();
  ASSERT_TRUE(std::filesystem::exists(real));
  for (const std::string& name :
       {real, real + "/final", "jobs/default/" + adapter().job(), std::string("../../adapters"),
        std::string("/etc/passwd"), "file://" + real, std::string("https://example.org/a.tar"),
        std::string("")}) {
    const auto status = load(name, 0).status();
    EXPECT_TRUE(status.code() == base::Code::kNotFound ||
                status.code() == base::Code::kInvalidArgument)
        << name << ": " << status.to_string();
  }
  EXPECT_EQ(report_engine("w1").desired_size(), 0) << "a worker is told of one all the same";
}

// Whoever may train, infer and administer may not have adapters served for all that.
TEST_F(AdapterDoorsTest, OnlyTheScopeAdaptersServeLoadsAndUnloads) {
  const auto caller = [](std::initializer_list<Scope> scopes) {
    return auth::Authenticator("default", scopes).authenticate({}).value();
  };
  store::Store::Options options;
  options.redis.address = redis_.address();
  store::Store store(options);
  store::AdapterRepository records(store);
  store::AliasRepository names(store);
  store::WorkerRepository workers(store);
  const DataLayout layout(directory_ / "data");
  base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  int changes = 0;
  Adapters adapters(records, names, workers, layout, ids, [&] { ++changes; });
  const auto catalog = ModelCatalog::load(directory_ / "models/models.json");
  ASSERT_TRUE(catalog.ok()) << catalog.status().to_string();
  Aliases aliases({store, names, records, adapters, *catalog, ids}, [] {});

  const auto others =
      caller({Scope::kFilesRead, Scope::kFilesWrite, Scope::kJobsRead, Scope::kJobsWrite,
              Scope::kAdaptersRead, Scope::kAdaptersWrite, Scope::kInfer, Scope::kEvalRead,
              Scope::kEvalWrite, Scope::kMetricsRead, Scope::kAdmin});
  v1::LoadAdapterRequest wanted;
  wanted.set_id(id_);
  v1::UnloadAdapterRequest unwanted;
  unwanted.set_id(id_);
  const auto refused = [](const base::Status& status) {
    EXPECT_EQ(status.code(), base::Code::kPermissionDenied) << status.to_string();
    EXPECT_EQ(status.reason(), "SCOPE_MISSING");
    EXPECT_NE(status.message().find("adapters:serve"), std::string::npos) << status.message();
  };
  refused(adapters.load(others, wanted).status());
  EXPECT_EQ(adapter().desired(), v1::Adapter::DESIRED_ABSENT);

  const auto operators = caller({Scope::kAdaptersServe});
  ASSERT_TRUE(adapters.load(operators, wanted).ok());
  refused(adapters.unload(others, unwanted).status());
  EXPECT_EQ(adapter().desired(), v1::Adapter::DESIRED_DEVICE);
  EXPECT_TRUE(adapters.unload(operators, unwanted).ok());
  EXPECT_EQ(changes, 2) << "workers hear of what was allowed alone";

  v1::PinAdapterRequest pinned;
  pinned.set_id(id_);
  pinned.set_pinned(true);
  refused(adapters.pin(others, pinned).status());
  EXPECT_TRUE(adapters.pin(operators, pinned).ok());
  v1::SetAdapterAliasRequest name;
  name.set_alias("live");
  name.set_adapter(id_);
  refused(aliases.begin(others, name).status());
  const auto begun = aliases.begin(operators, name);
  ASSERT_TRUE(begun.ok()) << begun.status().to_string();
  ASSERT_TRUE(aliases.set(operators, begun->change).ok());
  name.set_override_gates(true);
  const auto overridden = aliases.begin(operators, name).status();
  EXPECT_EQ(overridden.reason(), "SCOPE_MISSING");
  EXPECT_THAT(overridden.message(), testing::HasSubstr("admin"));
  v1::DeleteAdapterAliasRequest gone;
  gone.set_alias("live");
  refused(aliases.remove(others, gone).status());
  EXPECT_TRUE(aliases.remove(operators, gone).ok());
}

}  // namespace
}  // namespace dex::server
