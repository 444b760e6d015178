#include "services/gateway/http/static_files.h"

#include <gmock/gmock.h>

#include <fstream>

#include "services/gateway/http/target.h"
#include "tests/support/temporary_directory.h"

namespace dex::gateway::http {
namespace {

using ::testing::HasSubstr;

class StaticFilesTest : public ::testing::Test {
 protected:
  StaticFilesTest() {
    std::filesystem::create_directories(root_ / "assets");
    write("index.html", "<html>");
    write("assets/app-BxY81_kQ.js", "code");
    write("assets/app-BxY81_kQ.js.gz", "zipped");
    write("logo.svg", "<svg/>");
    write(".secret", "hidden");
    std::ofstream(directory_ / "outside.txt") << "outside";
    std::filesystem::create_symlink(directory_ / "outside.txt", root_ / "link.txt");
    auto loaded = StaticFiles::load(root_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    files_ = std::move(loaded).value();
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
  }
  Reply get(const std::string& path, const Headers& headers = {}) {
    Request request;
    request.path = path;
    request.segments = parse_target(path).value().segments;
    request.headers = headers;
    return files_->answer(request);
  }
  static std::string header(const Reply& reply, const std::string& name) {
    for (const auto& [key, value] : reply.headers) {
      if (key == name) return value;
    }
    return "-";
  }

  const support::TemporaryDirectory directory_;
  const std::filesystem::path root_ = directory_ / "web";
  std::shared_ptr<const StaticFiles> files_;
};

TEST_F(StaticFilesTest, ServesFilesWithTheirTypeAndCaching) {
  const Reply page = get("/");
  EXPECT_EQ(page.body, "<html>");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(header(page, "Cache-Control"), "no-cache");
  const auto policy = header(page, "Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'self'"));
  EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe"))) << "scripts and styles are files of ours";
  const Reply code = get("/assets/app-BxY81_kQ.js");
  EXPECT_EQ(code.body, "code");
  EXPECT_EQ(code.content_type, "text/javascript; charset=utf-8");
  EXPECT_THAT(header(code, "Cache-Control"), HasSubstr("immutable"));
}

TEST_F(StaticFilesTest, GivesTheZippedSiblingToThoseWhoTakeIt) {
  const Reply zipped = get("/assets/app-BxY81_kQ.js", {{"accept-encoding", "br, gzip"}});
  EXPECT_EQ(zipped.body, "zipped");
  EXPECT_EQ(header(zipped, "Content-Encoding"), "gzip");
  EXPECT_EQ(zipped.content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(get("/assets/app-BxY81_kQ.js", {{"accept-encoding", "gzip;q=0"}}).body, "code");
}

TEST_F(StaticFilesTest, AKnownEtagIs304) {
  const Reply again = get("/logo.svg", {{"if-none-match", header(get("/logo.svg"), "ETag")}});
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
}

TEST_F(StaticFilesTest, PagesOfTheAppAreIndexAndTheRestIs404) {
  EXPECT_EQ(get("/jobs/ftjob-1").body, "<html>");
  EXPECT_EQ(get("/jobs/").body, "<html>");
  for (const char* path : {"/missing.js", "/.secret", "/link.txt", "/v1/nothing", "/rpc/x",
                           "/assets%2Fnothing.js", "/%5c..%5coutside.txt", "/etc/passwd.txt"}) {
    EXPECT_EQ(get(path).status, 404) << path;
  }
}

TEST_F(StaticFilesTest, AFolderWithoutIndexIsRefused) {
  EXPECT_EQ(StaticFiles::load(root_ / "assets").status().code(), base::Code::kFailedPrecondition);
  EXPECT_FALSE(StaticFiles::load(directory_ / "nowhere").ok());
}

TEST(HasHashTest, TellsHashesFromWords) {
  for (const char* name : {"app-BxY81_kQ.js", "a/app.4f3a9c1e.css", "x-4f3a9c1e.js.map"}) {
    EXPECT_TRUE(has_hash(name)) << name;
  }
  for (const char* name : {"index.html", "my-settings.json", "a-b.js", "settings.json"}) {
    EXPECT_FALSE(has_hash(name)) << name;
  }
}

}  // namespace
}  // namespace dex::gateway::http
