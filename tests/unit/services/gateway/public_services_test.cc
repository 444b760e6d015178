#include "services/gateway/proxy/public_services.h"

#include <gmock/gmock.h>

namespace dex::gateway {
namespace {

TEST(PublicServicesTest, AreThoseOfTheContract) {
  EXPECT_THAT(public_services(),
              ::testing::UnorderedElementsAre("dex.v1.FineTuningService", "dex.v1.FileService",
                                              "dex.v1.AdapterService", "dex.v1.InferenceService",
                                              "dex.v1.EvaluationService", "dex.v1.ModelService",
                                              "dex.v1.AdminService"));
  EXPECT_FALSE(is_public("dex.internal.v1.WorkerService"));
}

TEST(PublicServicesTest, PathsAreTakenApart) {
  EXPECT_EQ(service_of("/dex.v1.FileService/GetFile"), "dex.v1.FileService");
  for (const char* path : {"", "/", "x", "/dex.v1.FileService"})
    EXPECT_EQ(service_of(path), "") << path;
}

TEST(PublicServicesTest, KindsOfMethods) {
  EXPECT_TRUE(is_unary("/dex.v1.FileService/GetFile"));
  EXPECT_FALSE(is_unary("/dex.v1.FileService/UploadFile"));
  EXPECT_FALSE(is_unary("/dex.v1.InferenceService/GenerateStream"));
  EXPECT_FALSE(is_unary("/dex.v1.FileService/FromTheFuture"));
  EXPECT_FALSE(is_known("/dex.v1.FileService/FromTheFuture"));
}

}  // namespace
}  // namespace dex::gateway
