// What is wrong with a file is said when it comes, all of it, before there is a job (api.md §12:
// C01, C02, C03).
#include <algorithm>
#include <string>
#include <vector>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;

class FileFaultsTest : public SchedulerTest {
 protected:
  static std::string chat(int number, const std::string& role = "user") {
    return R"({"messages": [{"role": ")" + role + R"(", "content": "Question )" +
           std::to_string(number) + R"("}, {"role": "assistant", "content": "Answer )" +
           std::to_string(number) + R"("}]})";
  }
  // Of the findings of an upload's reply, the only one of that code in that line.
  static v1::Finding found(const v1::File& file, const std::string& code, int64_t line) {
    std::vector<v1::Finding> all;
    for (const auto& finding : file.findings()) {
      if (finding.code() == code && finding.line() == line) all.push_back(finding);
    }
    EXPECT_EQ(all.size(), 1U) << code << " in line " << line << " of " << file.DebugString();
    return all.empty() ? v1::Finding() : all[0];
  }
};

TEST_F(FileFaultsTest, EveryFaultIsInTheUploadsReplyWithItsPlaceAndNoJobIsQueued) {
  std::string bytes;
  for (int line = 1; line <= 40; ++line) {
    bytes += line == 3    ? chat(line, "human")
             : line == 7  ? R"({"messages": [{"role": "user", )"
             : line == 12 ? R"({"mesages": [{"role": "user", "content": "a"}]})"
             : line == 31 ? chat(line, "bot")
                          : chat(line);
    bytes += '\n';
  }
  const auto file = upload(bytes);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->state(), v1::FILE_STATE_INVALID);
  EXPECT_EQ(file->statistics().rows_good(), 36) << "it is read to its end";
  EXPECT_EQ(file->finding_counts().at("unknown_role"), 2);
  EXPECT_EQ(file->finding_counts().at("invalid_json"), 1);
  EXPECT_EQ(file->finding_counts().at("missing_key"), 1);

  // An unknown role: the line, the byte, the place in it, what is allowed, and what to do.
  for (const auto& [line, role] : {std::pair(3, "\"human\""), std::pair(31, "\"bot\"")}) {
    const auto finding = found(*file, "unknown_role", line);
    EXPECT_EQ(finding.severity(), v1::Finding::SEVERITY_ERROR);
    EXPECT_EQ(finding.json_path(), "$.messages[0].role");
    EXPECT_EQ(bytes.find(role), static_cast<size_t>(finding.byte_offset()));
    EXPECT_THAT(finding.message(), HasSubstr("system, developer, user, assistant or tool"));
    EXPECT_THAT(finding.excerpt(), HasSubstr(role));
  }
  EXPECT_THAT(found(*file, "unknown_role", 3).hint(), HasSubstr("user"));
  EXPECT_THAT(found(*file, "missing_key", 12).message(), HasSubstr("mesages"));
  EXPECT_NE(found(*file, "invalid_json", 7).message(), "");

  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(file->id());
  expect_refused(create(request).status(), "FILE_INVALID", "training_file");
  const auto jobs = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  ASSERT_TRUE(jobs.ok()) << jobs.status().to_string();
  EXPECT_EQ(jobs->jobs_size(), 0);
}

}  // namespace
}  // namespace dex::server
