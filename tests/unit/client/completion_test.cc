// What shells offer behind dexctl: words of the command line, ids of the platform; and bash asking
// for them as it does for a user.

#include "client/cli/completion.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <fstream>
#include <sstream>

#include "client/cli/command_line.h"
#include "dex/v1/models.grpc.pb.h"
#include "services/base/subprocess.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// The names of the kinds in place of ids.
std::vector<std::string> kind_names(IdKind kind) {
  switch (kind) {
    case IdKind::kJob:
      return {"ftjob-1", "ftjob-2"};
    case IdKind::kModelOrAdapter:
      return {"smollm2", "ft:smollm2:a:1"};
    case IdKind::kPreset:
      return {"paper", "code"};
    case IdKind::kFile:
      return {"file-1"};
    default:
      return {};
  }
}

std::vector<std::string> offered(const std::vector<std::string>& words) {
  const CommandLine line;
  return completions(line.app, words, kind_names);
}

TEST(CompletionTest, CommandsAndThoseOfANoun) {
  EXPECT_THAT(offered({""}), AllOf(Contains("jobs"), Contains("compare"), Not(Contains("list"))));
  EXPECT_THAT(offered({"jobs", ""}), AllOf(Contains("create"), Contains("watch")));
  EXPECT_THAT(offered({"jobs", "re"}), AllOf(Not(IsEmpty()), Each(StartsWith("re"))));
  EXPECT_THAT(offered({"eval", "cre"}), ElementsAre("create"));
}

TEST(CompletionTest, OptionsOfTheCommandAndOfDexctl) {
  EXPECT_THAT(offered({"jobs", "create", "--pre"}), ElementsAre("--preset"));
  EXPECT_THAT(offered({"jobs", "create", "--outp"}), ElementsAre("--output"));
  EXPECT_THAT(offered({"--ser"}), ElementsAre("--server"));
}

TEST(CompletionTest, ValuesAndIds) {
  EXPECT_THAT(offered({"jobs", "list", "--output", ""}),
              ElementsAre("table", "json", "jsonl", "id"));
  EXPECT_THAT(offered({"jobs", "list", "--output=ta"}), ElementsAre("--output=table"));
  EXPECT_THAT(offered({"jobs", "create", "--preset", "co"}), ElementsAre("code"));
  EXPECT_THAT(offered({"jobs", "create", "--model", "ft:"}), ElementsAre("ft:smollm2:a:1"));
  EXPECT_THAT(offered({"jobs", "watch", ""}), ElementsAre("ftjob-1", "ftjob-2"));
  EXPECT_THAT(offered({"jobs", "watch", "--after", "3", "ftjob-2"}), ElementsAre("ftjob-2"));
  EXPECT_THAT(offered({"presets", "show", "pa"}), ElementsAre("paper"));
  EXPECT_THAT(offered({"compare", "smollm2", "ft"}), ElementsAre("ft:smollm2:a:1"));
  EXPECT_THAT(offered({"completion", "f"}), ElementsAre("fish"));
}

// Nothing to offer: the shell's own completion of files goes on.
TEST(CompletionTest, NothingWhereNothingIsKnown) {
  EXPECT_THAT(offered({"jobs", "watch", "ftjob-1", ""}), IsEmpty()) << "it takes one id";
  EXPECT_THAT(offered({"files", "upload", "ro"}), IsEmpty());
  EXPECT_THAT(offered({"jobs", "create", "--training-file", "rows"}), IsEmpty());
  EXPECT_THAT(offered({"jobs", "create", "--seed", ""}), IsEmpty());
  EXPECT_THAT(offered({"frobnicate", "--no-such"}), IsEmpty());
}

// Every argument that is called an id is one that ids are known of.
TEST(CompletionTest, EveryIdOfTheCommandLineHasAKind) {
  const CommandLine line;
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* noun : line.app.get_subcommands(all)) {
    if (noun->get_name() == "keys") continue;  // whose names are nothing to offer at every Tab
    for (const CLI::App* verb : noun->get_subcommands(all)) {
      for (const CLI::Option* option : verb->get_options()) {
        if (option->get_name(true) == "id") {
          EXPECT_NE(id_kind(*verb, *option), IdKind::kNone)
              << noun->get_name() << " " << verb->get_name();
        }
      }
    }
  }
}

class ModelNames final : public v1::ModelService::Service {
 public:
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* reply) override {
    reply->add_models()->set_name("model:with:colons");
    reply->add_models()->set_name("other");
    return grpc::Status::OK;
  }
};

class BashCompletionTest : public testing::Test {
 protected:
  BashCompletionTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&models_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  // What bash puts in place of the last word of `typed`, behind "dexctl --server ADDRESS ".
  std::string completed(const std::string& typed) {
    const std::string dexctl = (support::build_dir() / "bin/dexctl").string();
    base::Subprocess::Options options;
    options.program = "/bin/bash";
    options.args = {"--norc",
                    "-c",
                    "source <(\"$1\" completion bash); "
                    "COMP_LINE=\"$1 --server $2 $3\"; COMP_POINT=${#COMP_LINE}; "
                    "_dexctl; printf '%s\\n' \"${COMPREPLY[@]}\"",
                    "bash",
                    dexctl,
                    address_,
                    typed};
    std::filesystem::remove(directory_ / "out");  // programs append to it
    options.stdout_file = directory_ / "out";
    options.stderr_file = directory_ / "err";
    auto bash = base::Subprocess::start(options);
    EXPECT_TRUE(bash.ok()) << bash.status().to_string();
    EXPECT_EQ((*bash)->wait(30'000)->code, 0);
    std::ostringstream out;
    out << std::ifstream(directory_ / "out").rdbuf();
    return out.str();
  }

  support::TemporaryDirectory directory_;
  ModelNames models_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(BashCompletionTest, AsksThePlatformAndKeepsWhatIsTyped) {
  EXPECT_EQ(completed("models sh"), "show\n");
  EXPECT_EQ(completed("models show o"), "other\n");
  EXPECT_EQ(completed("models show "), "model:with:colons\nother\n");
  // Bash replaces what stands behind the last colon or equals sign only.
  EXPECT_EQ(completed("models show model:wi"), "with:colons\n");
  EXPECT_EQ(completed("models list --output=js"), "json\njsonl\n");
  EXPECT_EQ(completed("files upload ro"), "\n") << "files are bash's own";
}

}  // namespace
}  // namespace dex::cli
