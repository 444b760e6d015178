#include <grpcpp/generic/generic_stub.h>

#include "tests/integration/gateway/gateway_fixture.h"

// The standard services at the gateway's door, spoken to in bytes.
namespace dex::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One request, all replies until the call ends.
class Exchange : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Exchange(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
           const std::string& bytes)
      : slice_(bytes), request_(&slice_, 1) {
    rpc::set_timeout(context_, std::chrono::seconds(20));
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, {}, this);
    StartWriteLast(&request_, {});
    StartRead(&reply_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    if (reply_.Dump(&slices).ok()) {
      for (const auto& part : slices) {
        all_.append(reinterpret_cast<const char*>(part.begin()), part.size());
      }
    }
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.set();
  }
  std::string result() {
    EXPECT_TRUE(done_.wait());
    EXPECT_TRUE(status_.ok()) << status_.error_message();
    return all_;
  }

 private:
  grpc::ClientContext context_;
  const grpc::Slice slice_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  std::string all_;
  grpc::Status status_;
  rpc::Event done_;
};

class ReflectionTest : public GatewayTest {};

TEST_F(ReflectionTest, ListsThePublicServices) {
  const std::string list_services = "\x3a\x01*";  // field 7 of ServerReflectionRequest
  const auto names =
      Exchange(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
               list_services)
          .result();
  for (const char* name :
       {"dex.v1.FineTuningService", "dex.v1.FileService", "dex.v1.AdapterService",
        "dex.v1.InferenceService", "dex.v1.EvaluationService", "dex.v1.ModelService",
        "dex.v1.AdminService"}) {
    EXPECT_THAT(names, HasSubstr(name));
  }
  EXPECT_THAT(names, Not(HasSubstr("dex.internal")));
}

TEST_F(ReflectionTest, HealthKnowsTheServicesBehindTheGateway) {
  for (const std::string name : {"", "dex.v1.FileService", "dex.v1.InferenceService"}) {
    const std::string request =
        name.empty() ? "" : "\x0a" + std::string(1, static_cast<char>(name.size())) + name;
    EXPECT_EQ(Exchange(channel_, "/grpc.health.v1.Health/Check", request).result(), "\x08\x01")
        << name;
  }
}

}  // namespace
}  // namespace dex::gateway
