#include "services/gateway/http/multipart.h"

#include <gtest/gtest.h>

namespace dex::gateway::http {
namespace {

using Kind = MultipartEvent::Kind;

// The parts of a form as text, data of one part joined; "!" at its end for a fault.
std::string parsed(const std::string& body, size_t piece) {
  MultipartParser parser("B");
  std::deque<MultipartEvent> events;
  base::Status status;
  for (size_t at = 0; status.ok() && at < body.size(); at += piece) {
    status = parser.feed(std::string_view(body).substr(at, piece), events);
  }
  if (status.ok()) status = parser.finish();
  std::string text;
  for (const auto& event : events) {
    if (event.kind == Kind::kPart) text += "[" + event.part.name + ":";
    if (event.kind == Kind::kPart && event.part.filename) text += "(" + *event.part.filename + ")";
    if (event.kind == Kind::kData) text += event.data;
    if (event.kind == Kind::kPartEnd) text += "]";
    if (event.kind == Kind::kEnd) text += ".";
  }
  return status.ok() ? text : text + "!";
}

const char* const kForm =
    "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n"
    "--B\r\ncontent-disposition: form-data; name=file; filename=\"a\\\"b.jsonl\"\r\n"
    "Content-Type: text/plain\r\n\r\nline\r\n--C\r\n-B\r\n\r\n--B\r\n"
    "Content-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--B--\r\nepilogue";

TEST(MultipartTest, IsTheSameInEverySplit) {
  const std::string expected =
      "[purpose:fine-tune][file:(a\"b.jsonl)line\r\n--C\r\n-B\r\n][empty:].";
  for (size_t piece = 1; piece <= std::string(kForm).size(); ++piece) {
    ASSERT_EQ(parsed(kForm, piece), expected) << "in pieces of " << piece;
  }
}

TEST(MultipartTest, RefusesWhatIsNoForm) {
  for (const std::string bad :
       {"", "plain text", "--B\r\n", "--B\r\n\r\nx\r\n--B--", "--B\r\nno colon\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Disposition: attachment; name=x\r\n\r\nx\r\n--B--", "--Bogus\r\n",
        "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nnever ends"}) {
    EXPECT_EQ(parsed(bad, 3).back(), '!') << bad;
  }
  std::string many;
  for (int i = 0; i < 70; ++i) {
    many += "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
  }
  EXPECT_EQ(parsed(many + "--B--", 1000).back(), '!');
  EXPECT_EQ(parsed("--B\r\nX: " + std::string(9000, 'x'), 1000).back(), '!');
}

TEST(MultipartTest, HoldsNoMoreThanABoundary) {
  MultipartParser parser("B");
  std::deque<MultipartEvent> events;
  ASSERT_TRUE(parser.feed("--B\r\nContent-Disposition: form-data; name=f\r\n\r\n", events).ok());
  size_t handed = 0;
  for (int i = 0; i < 100; ++i) {
    events.clear();
    ASSERT_TRUE(parser.feed(std::string(1000, 'x'), events).ok());
    for (const auto& event : events) handed += event.data.size();
    EXPECT_GE(handed + 8, 1000U * (i + 1));
  }
}

TEST(MultipartTest, ReadsTheBoundary) {
  EXPECT_EQ(MultipartParser::boundary_of("multipart/form-data; boundary=abc").value(), "abc");
  EXPECT_EQ(MultipartParser::boundary_of("Multipart/Form-Data;charset=x; Boundary=\"a b\"").value(),
            "a b");
  for (const char* bad : {"", "application/json", "multipart/form-data",
                          "multipart/form-data; boundary=", "multipart/mixed; boundary=x"}) {
    EXPECT_FALSE(MultipartParser::boundary_of(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace dex::gateway::http
