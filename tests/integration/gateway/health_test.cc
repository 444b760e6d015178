// GetHealth at a gateway: the scheduler's diagnosis, and what the gateway finds when it dials the
// workers.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "services/base/fd.h"
#include "tests/integration/gateway/gateway_fixture.h"

namespace dex::gateway {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using Health = v1::Health;

// A port whose server hangs: the kernel takes connections, nobody reads them.
class HangingPort {
 public:
  HangingPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* const at = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(::bind(socket_.get(), at, size), 0);
    EXPECT_EQ(::listen(socket_.get(), 16), 0);
    EXPECT_EQ(::getsockname(socket_.get(), at, &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(where.sin_port));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  base::Fd socket_;
  std::string address_;
};

class HealthTest : public GatewayTest {
 protected:
  base::Result<Health> ask(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    limit(context);
    Health health;
    const auto status =
        v1::AdminService::NewStub(channel)->GetHealth(&context, v1::GetHealthRequest(), &health);
    if (!status.ok()) return rpc::from_grpc(status);
    return health;
  }
  Health health() {
    const auto found = ask(channel_);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : Health();
  }
  // The check of that name; an empty one when there is none.
  static Health::Check check_of(const Health& health, const std::string& name) {
    for (const auto& check : health.checks()) {
      if (check.name() == name) return check;
    }
    return {};
  }

  FakeWorker a_{"a"};
  FakeWorker b_{"b"};
};

TEST_F(HealthTest, WorkersThatAllAnswer) {
  std::string tenant, id;
  const auto found = scheduler_->admin.health;
  scheduler_->admin.health = [&](rpc::Call& call) {
    tenant = call.header("dex-tenant").value_or("-");
    id = call.request_id();
    return found(call);
  };
  route(routes_to({&a_, &b_}));
  grpc::ClientContext context;
  limit(context);
  context.AddMetadata("x-request-id", "my-id");
  Health health;
  const auto status =
      v1::AdminService::NewStub(channel_)->GetHealth(&context, v1::GetHealthRequest(), &health);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(health.version(), "of the scheduler");
  EXPECT_EQ(check_of(health, "Redis").topic(), "store") << "the scheduler's own come first";
  EXPECT_EQ(check_of(health, "workers").topic(), "gateway");
  EXPECT_EQ(check_of(health, "workers").finding(), "2 of 2 asked, all answer");
  EXPECT_THAT(check_of(health, "routes").finding(), HasSubstr("to 2 workers"));
  for (const auto& check : health.checks()) {
    EXPECT_EQ(check.severity(), Health::SEVERITY_OK) << check.DebugString();
    EXPECT_EQ(check.remedy(), "") << check.name();
  }
  EXPECT_EQ(tenant, "default");
  EXPECT_EQ(id, "my-id");
  EXPECT_EQ(context.GetServerInitialMetadata().find("x-request-id")->second, "my-id");
}

// Its record may say for a whole lease yet that it is there.
TEST_F(HealthTest, AWorkerThatIsGone) {
  route(routes_to({&a_, &b_}));
  b_.kill();
  const Health found = health();
  const auto gone = check_of(found, "w2");
  EXPECT_EQ(gone.severity(), Health::SEVERITY_FAIL);
  EXPECT_THAT(gone.finding(), HasSubstr("does not answer at " + b_.address()));
  EXPECT_THAT(gone.remedy(), HasSubstr("--advertise"));
  EXPECT_EQ(check_of(found, "w1").name(), "");
  EXPECT_EQ(check_of(found, "workers").name(), "") << "not all answer";
  EXPECT_EQ(check_of(found, "Redis").severity(), Health::SEVERITY_OK);
}

TEST_F(HealthTest, AWorkerThatHangsIsWaitedForOnlySoLong) {
  const HangingPort port;
  auto routes = routes_to({&a_});
  auto* hangs = routes.add_routes();
  hangs->set_worker("hangs");
  hangs->set_inference_address(port.address());
  hangs->set_base("smol");
  route(std::move(routes));
  const auto before = steady_clock::now();
  const Health found = health();
  EXPECT_LT(steady_clock::now() - before, seconds(10));
  EXPECT_EQ(check_of(found, "hangs").severity(), Health::SEVERITY_FAIL);
  EXPECT_THAT(check_of(found, "hangs").finding(), HasSubstr(port.address()));
}

TEST_F(HealthTest, AWorkerThatTakesNothingNew) {
  route(routes_to({&a_}));
  a_.drain();
  const auto drains = check_of(health(), "w1");
  EXPECT_EQ(drains.severity(), Health::SEVERITY_WARN);
  EXPECT_THAT(drains.finding(), HasSubstr("takes nothing new"));
}

TEST_F(HealthTest, WithoutAWorkerNothingIsDialed) {
  route(routes_to({}));
  const Health found = health();
  EXPECT_THAT(check_of(found, "routes").finding(), HasSubstr("to 0 workers"));
  EXPECT_EQ(check_of(found, "workers").name(), "");
}

TEST_F(HealthTest, ASchedulerThatIsAwayIsADiagnosisAndNoError) {
  route(routes_to({&a_}));
  scheduler_->kill();
  const Health found = health();
  EXPECT_EQ(check_of(found, "scheduler").severity(), Health::SEVERITY_FAIL);
  EXPECT_NE(check_of(found, "scheduler").remedy(), "");
  EXPECT_EQ(check_of(found, "workers").severity(), Health::SEVERITY_OK) << "inference goes on";
  EXPECT_EQ(found.promises_size(), 0) << "nobody can say";
  EXPECT_EQ(found.version(), Gateway::Options().version);
  EXPECT_GT(found.server_time().seconds(), 1'700'000'000);
}

TEST_F(HealthTest, AGatewayThatHasNoRoutesYet) {
  const HangingPort port;
  Gateway::Options options;
  options.scheduler = port.address();
  options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
  const auto lonely = Gateway::start(options);
  ASSERT_TRUE(lonely.ok()) << lonely.status().to_string();
  grpc::ClientContext context;
  rpc::set_timeout(context, seconds(5));  // of which it leaves itself some to answer
  Health found;
  const auto status = v1::AdminService::NewStub(rpc::channel((*lonely)->grpc_address()))
                          ->GetHealth(&context, v1::GetHealthRequest(), &found);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(check_of(found, "scheduler").severity(), Health::SEVERITY_FAIL);
  EXPECT_EQ(check_of(found, "routes").severity(), Health::SEVERITY_FAIL);
}

TEST_F(HealthTest, TheSchedulersErrorsAreItsOwn) {
  scheduler_->admin.health = [](rpc::Call&) {
    return base::Result<Health>(base::failed_precondition("NOT_NOW", "for a reason"));
  };
  const auto status = ask(channel_).status();
  EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "NOT_NOW");
  EXPECT_THAT(status.message(), HasSubstr("for a reason"));
  EXPECT_THAT(support::http_get(support::port_of(gateway_->metrics_address()), "/metrics"),
              HasSubstr("code=\"FAILED_PRECONDITION\",method=\"dex.v1.AdminService/GetHealth\""));
}

}  // namespace
}  // namespace dex::gateway
