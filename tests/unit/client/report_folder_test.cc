#include "client/cli/report_folder.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "services/base/files.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string text_of(const std::filesystem::path& path) {
  const auto text = base::read_file(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

TEST(ReportFolderTest, AnEvaluationsReportLiesBesideThePicturesThatItShows) {
  v1::Evaluation evaluation;
  EXPECT_THAT(report_files(evaluation), IsEmpty());
  evaluation.set_report_markdown("![Heads of base](heads-1-base.svg)\n");
  auto& picture = *evaluation.add_pictures();
  picture.set_name("heads-1-base.svg");
  picture.set_svg("<svg/>");
  const support::TemporaryDirectory directory;
  const auto folder = directory / "made/when/missing";
  for (int again = 0; again < 2; ++again) {  // files of before are replaced
    const auto written = write_report(folder, report_files(evaluation));
    ASSERT_TRUE(written.ok()) << written.to_string();
    EXPECT_EQ(text_of(folder / "report.md"), evaluation.report_markdown());
    EXPECT_EQ(text_of(folder / "heads-1-base.svg"), evaluation.pictures(0).svg());
    evaluation.mutable_pictures(0)->set_svg("<svg>new</svg>");
  }
}

TEST(ReportFolderTest, AHeadSelectionHasItsNumbersAndItsPictureApart) {
  v1::HeadSelectionReport report;
  report.set_criterion("ENTROPY");
  EXPECT_EQ(report_files(report).size(), 1U);
  report.mutable_picture()->set_name("head_selection.svg");
  report.mutable_picture()->set_svg("<svg/>");
  const auto files = report_files(report);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "head_selection.json");
  EXPECT_THAT(files[0].content, HasSubstr("ENTROPY"));
  EXPECT_THAT(files[0].content, Not(HasSubstr("<svg/>")));
  EXPECT_EQ(files[1].content, "<svg/>");
}

TEST(ReportFolderTest, NamesThatLeaveTheFolderAreRefusedBeforeAnythingIsWritten) {
  const support::TemporaryDirectory directory;
  for (const std::string name : {"../a.svg", "a/b.svg", "/a.svg", "..", ".hidden", "", "a\\b"}) {
    const auto written = write_report(directory / "out", {{"report.md", "text"}, {name, "<svg/>"}});
    EXPECT_EQ(written.code(), base::Code::kInternal) << name;
    EXPECT_FALSE(std::filesystem::exists(directory / "out")) << name;
  }
}

}  // namespace
}  // namespace dex::cli
