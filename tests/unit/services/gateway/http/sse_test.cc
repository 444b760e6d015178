#include "services/gateway/http/sse.h"

#include <gtest/gtest.h>

#include "services/gateway/http/head.h"

namespace dex::gateway::http {
namespace {

TEST(SseTest, WritesTheFormat) {
  EXPECT_EQ(to_text(SseEvent{"{}", "metrics", "7"}), "id: 7\nevent: metrics\ndata: {}\n\n");
  EXPECT_EQ(to_text(SseEvent{"[DONE]", "", ""}), "data: [DONE]\n\n");
  EXPECT_EQ(to_text(SseEvent{"", "", ""}), "data: \n\n");
}

TEST(SseTest, LineEndsCannotStartAnotherField) {
  EXPECT_EQ(to_text(SseEvent{"a\nb\r\nc\rd", "e\nevent: x", "1\r2"}),
            "id: 12\nevent: eevent: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(HeadTest, WritesWhatIsAskedAndNoMore) {
  Head head;
  head.status = 404;
  head.keep_alive = false;
  head.length = 3;
  head.content_type = "text/plain";
  head.headers = {{"x-request-id", "r"}, {"Bad Name", "x"}, {"Split", "a\r\nSet-Cookie: b"}};
  EXPECT_EQ(to_text(head, std::chrono::system_clock::from_time_t(784111777)),
            "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n"
            "Content-Type: text/plain\r\nContent-Length: 3\r\nX-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\nx-request-id: r\r\n\r\n");
  EXPECT_EQ(chunk_head(500), "1f4\r\n");
}

}  // namespace
}  // namespace dex::gateway::http
