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

// By the request_id, which every method that changes something must have (api.md §1).
TEST(PublicServicesTest, MethodsThatChangeSomething) {
  for (const char* path :
       {"/dex.v1.FileService/UploadFile", "/dex.v1.FileService/DeleteFile",
        "/dex.v1.AdapterService/ImportAdapter", "/dex.v1.AdapterService/LoadAdapter",
        "/dex.v1.FineTuningService/CreateFineTuningJob", "/dex.v1.AdminService/SetQuota",
        "/dex.v1.AdminService/CreateApiKey", "/dex.v1.AdminService/RevokeApiKey"}) {
    EXPECT_TRUE(changes_state(path)) << path;
  }
  for (const char* path : {"/dex.v1.FileService/GetFile", "/dex.v1.InferenceService/Generate",
                           "/dex.v1.AdminService/ListApiKeys", "/dex.v1.FileService/Unheard"}) {
    EXPECT_FALSE(changes_state(path)) << path;
  }
}

}  // namespace
}  // namespace dex::gateway
