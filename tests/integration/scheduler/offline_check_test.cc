// What dexctl says of a file without a server is what the server says of it (api.md §12: C04).
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "services/base/subprocess.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/bad_files.h"
#include "tests/support/paths.h"

namespace dex::server {
namespace {

using nlohmann::json;

class OfflineCheckTest : public SchedulerTest {
 protected:
  // What `dexctl --output json` prints, and its exit code.
  struct Said {
    json file;
    int code = -1;
    std::string err;
  };
  Said dexctl(std::vector<std::string> args, const std::string& server) {
    args.insert(args.begin(), {"--output", "json", "--server", server, "--timeout", "60"});
    base::Subprocess::Options options;
    options.program = support::build_dir() / "bin/dexctl";
    options.args = std::move(args);
    for (const char* name : {"out", "err"})  // programs append to them
      std::filesystem::remove(directory_ / name);
    options.stdout_file = directory_ / "out";
    options.stderr_file = directory_ / "err";
    const auto program = std::move(base::Subprocess::start(options)).value();
    const auto exit = program->wait(120'000);
    Said said;
    said.code = exit ? exit->code : -1;
    said.err = contents("err");
    said.file = json::parse(contents("out"), nullptr, false);
    return said;
  }
  std::string contents(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(directory_ / name).rdbuf();
    return text.str();
  }
  // Of an uploaded file, as the upload stored them.
  json stored_findings(const std::string& id) {
    v1::ListFindingsRequest request;
    request.set_id(id);
    request.set_page_size(1000);
    const auto page = call(*files_, &FileStub::ListFindings, request);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    json list = json::array();
    if (!page.ok()) return list;
    for (const auto& finding : page->findings()) list.push_back(view(finding));
    return list;
  }
  static json view(const v1::Finding& finding) {
    return {{"line", finding.line()},
            {"byte_offset", finding.byte_offset()},
            {"json_path", finding.json_path()},
            {"code", finding.code()},
            {"severity", v1::Finding::Severity_Name(finding.severity())},
            {"message", finding.message()},
            {"hint", finding.hint()},
            {"excerpt", finding.excerpt()}};
  }
  // The same of a file as dexctl prints it: 64-bit numbers are strings there.
  static json findings(const json& file) {
    json list = json::array();
    for (const json& finding : file.at("findings")) {
      json kept;
      for (const char* key : {"json_path", "code", "severity", "message", "hint", "excerpt"})
        kept[key] = finding.at(key);
      for (const char* key : {"line", "byte_offset"})
        kept[key] = std::stoll(finding.at(key).get<std::string>());
      list.push_back(kept);
    }
    return list;
  }
};

TEST_F(OfflineCheckTest, FindsWhatTheServerFindsInEveryBadFile) {
  std::set<std::string> met;
  for (const auto& [name, bytes] : support::bad_files()) {
    const std::string path = directory_ / (name + ".jsonl");
    std::ofstream(path, std::ios::binary) << bytes;
    // Nobody listens there: nothing is asked.
    const Said offline = dexctl({"files", "validate", path}, "127.0.0.1:1");
    ASSERT_TRUE(offline.file.is_object()) << name << ": " << offline.err;
    const auto uploaded = upload(bytes);
    ASSERT_TRUE(uploaded.ok()) << name << ": " << uploaded.status().to_string();
    EXPECT_EQ(findings(offline.file), stored_findings(uploaded->id())) << name;
    json counts = json::object();
    for (const auto& [code, count] : uploaded->finding_counts()) {
      counts[code] = std::to_string(count);
      met.insert(code);
    }
    EXPECT_EQ(offline.file.at("finding_counts"), counts) << name;
    EXPECT_EQ(offline.file.at("state"), v1::FileState_Name(uploaded->state())) << name;
    EXPECT_EQ(offline.code, uploaded->state() == v1::FILE_STATE_READY ? 0 : 3) << name;
    // And the server once more, from what it stored.
    const Said again = dexctl({"files", "validate", uploaded->id()}, scheduler_->grpc_address());
    ASSERT_TRUE(again.file.is_object()) << name << ": " << again.err;
    EXPECT_EQ(findings(again.file), findings(offline.file)) << name;
    EXPECT_EQ(again.code, offline.code) << name;
    EXPECT_EQ(again.file.at("statistics"), offline.file.at("statistics")) << name;
  }
  for (const std::string& code : support::kStructureCodes)
    EXPECT_TRUE(met.contains(code)) << code << " is in none of the files";
}

TEST_F(OfflineCheckTest, WhatItRepairsIsReady) {
  std::string array = "[";
  for (int i = 0; i < 20; ++i) {
    std::string one = row(i);
    one.pop_back();
    array += (i > 0 ? ",\n" : "") + one;
  }
  const std::string path = directory_ / "array.json", fixed = directory_ / "rows.jsonl";
  std::ofstream(path, std::ios::binary) << array << "]";
  EXPECT_EQ(dexctl({"files", "validate", path}, "127.0.0.1:1").code, 3);
  const Said said = dexctl({"files", "validate", path, "--fix", fixed}, "127.0.0.1:1");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.err, testing::HasSubstr("json_array_file"));
  const auto uploaded = upload(contents("rows.jsonl"));
  ASSERT_TRUE(uploaded.ok()) << uploaded.status().to_string();
  EXPECT_EQ(uploaded->state(), v1::FILE_STATE_READY);
  EXPECT_EQ(uploaded->statistics().rows_good(), 20);
}

}  // namespace
}  // namespace dex::server
