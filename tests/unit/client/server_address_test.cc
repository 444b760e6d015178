// Which server dexctl talks to (api.md §8): the order of its sources, and files left over.

#include "client/cli/server_address.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "client/cli/exit_code.h"
#include "dex/v1/models.grpc.pb.h"
#include "services/base/data_dir.h"
#include "services/base/subprocess.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ServerAddressTest : public testing::Test {
 protected:
  void write(const std::string& endpoints) {
    std::ofstream(directory_ / "endpoints.json") << endpoints;
  }
  std::string file() { return (directory_ / "endpoints.json").string(); }
  base::Result<ServerAddress> find(ServerSources sources, bool alive = true) {
    return find_server(sources, [alive](int64_t) { return alive; });
  }

  support::TemporaryDirectory directory_;
};

TEST_F(ServerAddressTest, TheFirstSourceThatSaysSomethingWins) {
  write(R"({"pid": 7, "grpc": "127.0.0.1:3"})");
  const auto flag = find({"a:1", "b:2", directory_.path()});
  EXPECT_EQ(flag->address, "a:1");
  EXPECT_EQ(flag->origin, "--server");
  const auto variable = find({"", "b:2", directory_.path()});
  EXPECT_EQ(variable->address, "b:2");
  EXPECT_EQ(variable->origin, "DEX_SERVER");
  const auto local = find({"", "", directory_.path()});
  EXPECT_EQ(local->address, "127.0.0.1:3");
  EXPECT_EQ(local->origin, file());
  EXPECT_EQ(find({"", "", directory_ / "other"})->address, "localhost:50051");
  EXPECT_EQ(find({"", "", ""})->origin, "the default");
}

TEST_F(ServerAddressTest, AProfileThatWasNamedComesBeforeTheEnvironmentAndTheDefaultOneBehindIt) {
  write(R"({"pid": 7, "grpc": "127.0.0.1:3"})");
  ServerSources sources{.variable = "b:2",
                        .data_dir = directory_.path(),
                        .profile = "work",
                        .profile_server = "c:3",
                        .profile_chosen = true};
  EXPECT_EQ(find(sources)->address, "c:3");
  EXPECT_EQ(find(sources)->origin, "profile work");
  sources.profile_chosen = false;
  EXPECT_EQ(find(sources)->address, "b:2");
  sources.variable = "";
  EXPECT_EQ(find(sources)->address, "c:3") << "before a dexd that happens to run here";
  sources.flag = "a:1";
  sources.profile_chosen = true;
  EXPECT_EQ(find(sources)->address, "a:1");
}

TEST_F(ServerAddressTest, AFileOfADexdThatIsGoneIsNotUsed) {
  write(R"({"pid": 4711, "grpc": "127.0.0.1:3"})");
  const auto found = find({"", "", directory_.path()}, false);
  EXPECT_EQ(found.status().code(), base::Code::kUnavailable);
  EXPECT_THAT(found.status().message(),
              AllOf(HasSubstr(file()), HasSubstr("4711"), HasSubstr("--server")));
  EXPECT_EQ(find({"a:1", "", directory_.path()}, false)->address, "a:1");
  write(R"({"grpc": "127.0.0.1:3"})");  // of a dexd that did not say who it is
  EXPECT_EQ(find({"", "", directory_.path()}, false)->address, "127.0.0.1:3");
}

TEST_F(ServerAddressTest, ABrokenFileIsNamedNotPassedOver) {
  for (const char* text : {"", "{", "[]", R"({"http": "127.0.0.1:3"})", R"({"grpc": 3})"}) {
    write(text);
    const auto found = find({"", "", directory_.path()});
    EXPECT_EQ(found.status().code(), base::Code::kInvalidArgument) << text;
    EXPECT_THAT(found.status().message(), HasSubstr(file())) << text;
  }
}

TEST(DataDirTest, VariableThenHome) {
  EXPECT_EQ(base::default_data_dir("/data/./dex", "/home/a"), "/data/dex");
  EXPECT_EQ(base::default_data_dir("here", ""), fs::current_path() / "here");
  EXPECT_EQ(base::default_data_dir("", "/home/a"), "/home/a/.local/share/dex");
  EXPECT_TRUE(base::default_data_dir("", "").empty());
}

class Models : public v1::ModelService::Service {
  grpc::Status GetServerCapabilities(grpc::ServerContext*, const v1::GetServerCapabilitiesRequest*,
                                     v1::ServerCapabilities* reply) override {
    reply->set_version("1.2.3");
    return grpc::Status::OK;
  }
};

// dexctl itself, with nothing but a data directory to go by.
class DexctlTest : public ServerAddressTest {
 protected:
  int run(const std::vector<std::string>& args) {
    base::Subprocess::Options options;
    options.program = support::build_dir() / "bin/dexctl";
    options.args = args;
    options.environment = {{"DEX_SERVER", ""}, {"DEX_DATA_DIR", directory_.path().string()}};
    options.stdout_file = options.stderr_file = directory_ / "output";
    const auto dexctl = std::move(base::Subprocess::start(options)).value();
    const auto exit = dexctl->wait(60'000);
    return exit ? exit->code : -1;
  }
  std::string output() {
    std::ostringstream text;
    text << std::ifstream(directory_ / "output").rdbuf();
    return text.str();
  }
};

TEST_F(DexctlTest, FindsTheServerOfALocalDexd) {
  Models models;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&models);
  const auto server = builder.BuildAndStart();
  write(R"({"pid": )" + std::to_string(getpid()) + R"(, "grpc": "127.0.0.1:)" +
        std::to_string(port) + "\"}");
  EXPECT_EQ(run({"version"}), kDone) << output();
  EXPECT_THAT(output(), HasSubstr("1.2.3"));
}

TEST_F(DexctlTest, NamesTheFileWhoseDexdIsGoneOrDoesNotAnswer) {
  base::Subprocess::Options nothing;
  nothing.program = "true";
  const auto gone = std::move(base::Subprocess::start(nothing)).value();
  ASSERT_TRUE(gone->wait(60'000));
  write(R"({"pid": )" + std::to_string(gone->pid()) + R"(, "grpc": "127.0.0.1:1"})");
  EXPECT_EQ(run({"version"}), kSystemFault);
  EXPECT_THAT(output(), AllOf(HasSubstr(file()), HasSubstr("is gone")));

  write(R"({"grpc": "127.0.0.1:1"})");
  EXPECT_EQ(run({"--timeout", "0.2", "version"}), kSystemFault);
  EXPECT_THAT(output(), HasSubstr("no answer from 127.0.0.1:1 (named by " + file() + ")"));
}

TEST_F(DexctlTest, AWrongCommandLineNamesTheHelpThatExplainsIt) {
  EXPECT_EQ(run({"jobs", "get"}), kUsage);
  EXPECT_THAT(output(), HasSubstr("dexctl jobs get --help explains"));
  EXPECT_EQ(run({"jobs", "create", "--help"}), kDone);
  EXPECT_THAT(output(), HasSubstr("Examples:\n  dexctl jobs create --model"));
}

TEST_F(DexctlTest, HelpTellsTheOrder) {
  EXPECT_EQ(run({"--help"}), kDone);
  // As words: help texts are broken into lines.
  std::istringstream words(output());
  std::string flat;
  for (std::string word; words >> word;) flat += word + " ";
  EXPECT_THAT(flat, HasSubstr("else the profile's, DEX_SERVER, that of a dexd on this machine"));
  EXPECT_THAT(flat, HasSubstr("localhost:50051"));
}

}  // namespace
}  // namespace dex::cli
