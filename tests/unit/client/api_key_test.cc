// Where dexctl finds its API key, what it says of keys, and that a client sends it (api.md §8).
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <sstream>

#include "client/cli/api_key_source.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ApiKeySourceTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text,
                              mode_t mode = 0600) {
    const auto file = directory_ / name;
    std::ofstream(file) << text;
    EXPECT_EQ(chmod(file.c_str(), mode), 0);
    return file;
  }
  ServerAddress local() { return {"127.0.0.1:1", (directory_ / "endpoints.json").string()}; }

  support::TemporaryDirectory directory_;
};

TEST_F(ApiKeySourceTest, TheFirstSourceThatSaysSomethingWins) {
  const auto file = write("my.key", "dex_file\n");
  write("admin.key", "dex_admin\n");
  EXPECT_EQ(*find_api_key({file, "dex_variable", local()}), "dex_file");
  EXPECT_EQ(*find_api_key({"", "dex_variable", local()}), "dex_variable");
  EXPECT_EQ(*find_api_key({"", "", local()}), "dex_admin");
  EXPECT_EQ(*find_api_key({"", "", {"a:1", "--server"}}), "")
      << "the local admin.key is for the local platform alone";
}

TEST_F(ApiKeySourceTest, AFileThatWasNamedMustBeItsOwnersAndHoldAKey) {
  EXPECT_FALSE(find_api_key({directory_ / "none", "", local()}).ok());
  const auto open = find_api_key({write("open", "dex_secret", 0644), "", local()}).status();
  EXPECT_THAT(open.message(), AllOf(HasSubstr("chmod 600"), Not(HasSubstr("dex_secret"))));
  for (const char* text : {"", "\n", "two words", "two\nlines"}) {
    EXPECT_EQ(find_api_key({write("bad", text), "", local()}).status().reason(), "INVALID_FIELD")
        << text;
  }
  EXPECT_FALSE(find_api_key({"", "a\x01key", local()}).ok());
}

// An AdminService that remembers what it was asked, and with which bearer.
class FakeKeys final : public v1::AdminService::Service {
 public:
  grpc::Status CreateApiKey(grpc::ServerContext* context, const v1::CreateApiKeyRequest* request,
                            v1::ApiKey* reply) override {
    note(*context);
    asked = *request;
    reply->set_id("key-1");
    reply->set_secret("dex_the_secret");
    return {};
  }
  grpc::Status ListApiKeys(grpc::ServerContext* context, const v1::ListApiKeysRequest*,
                           v1::ListApiKeysResponse* reply) override {
    note(*context);
    auto* key = reply->add_keys();
    key->set_id("key-1");
    key->set_name("ci");
    key->set_prefix("dex_abcdef");
    key->set_state(v1::ApiKey::STATE_REVOKED);
    return {};
  }
  grpc::Status GetUsage(grpc::ServerContext*, const v1::GetUsageRequest* request,
                        v1::GetUsageResponse* reply) override {
    reply->set_tenant(request->tenant());
    auto* day = reply->add_days();
    day->set_date("2026-11-30");
    day->set_device_seconds(12.25);
    day->set_generated_tokens(request->days());
    return {};
  }
  void note(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("authorization");
    bearer = found == context.client_metadata().end()
                 ? "none"
                 : std::string(found->second.data(), found->second.size());
  }

  std::string bearer;
  v1::CreateApiKeyRequest asked;
};

class KeysCommandTest : public testing::Test {
 protected:
  KeysCommandTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&keys_);
    server_ = builder.BuildAndStart();
  }
  ~KeysCommandTest() override { server_->Shutdown(); }

  int run(const std::string& line, Format format = Format::kTable) {
    CLI::App app;
    Action action;
    add_keys(app, action);
    add_usage(app, action);
    app.parse(line);
    Output output(format, Terminal{}, false, out_, err_);
    client::Client client({.server = "127.0.0.1:" + std::to_string(port_), .api_key = "dex_mine"});
    Context context{client, output, {}};
    return action(context);
  }

  FakeKeys keys_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::ostringstream out_, err_;
};

TEST_F(KeysCommandTest, CreateShowsTheSecretAloneOnStdoutAndAsksAsTheCaller) {
  EXPECT_EQ(run("keys create ci --scopes jobs:read infer --days 1"), kDone);
  EXPECT_EQ(out_.str(), "dex_the_secret\n");
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("shown once"), Not(HasSubstr("dex_the_secret"))));
  EXPECT_EQ(keys_.bearer, "Bearer dex_mine");
  EXPECT_THAT(keys_.asked.scopes(), testing::ElementsAre("jobs:read", "infer"));
  EXPECT_TRUE(keys_.asked.has_expire_time());
  EXPECT_FALSE(keys_.asked.request_id().empty());
}

TEST_F(KeysCommandTest, ForAScriptTheKeyIsTheResult) {
  EXPECT_EQ(run("keys create ci --scopes infer", Format::kId), kDone);
  EXPECT_EQ(out_.str(), "dex_the_secret\n");
  EXPECT_FALSE(keys_.asked.has_expire_time());
}

TEST_F(KeysCommandTest, AListShowsHowAKeyBeginsAndWhetherItEnded) {
  EXPECT_EQ(run("keys list"), kDone);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("dex_abcdef…"), HasSubstr("revoked"), HasSubstr("ci")));
}

TEST_F(KeysCommandTest, UsageIsALineADay) {
  EXPECT_EQ(run("usage team-a --days 7"), kDone);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("2026-11-30"), HasSubstr("12.2"), HasSubstr("7")));
  EXPECT_EQ(run("usage", Format::kId), kDone);
  EXPECT_THAT(out_.str(), testing::EndsWith("2026-11-30\n"));
}

}  // namespace
}  // namespace dex::cli
