#include <nlohmann/json.hpp>

#include "tests/integration/gateway/http_server_fixture.h"

// What one connection may do, and what it may not.
namespace dex::gateway::http {
namespace {

using support::RawConnection;
using support::read_reply;
using support::request_text;
using ::testing::HasSubstr;

std::string code_of(const support::HttpReply& reply) {
  return nlohmann::json::parse(reply.body).at("error").at("code");
}

TEST_F(HttpServerTest, AnswersManyRequestsOnOneConnection) {
  start();
  RawConnection connection(server_->port());
  for (int i = 0; i < 20; ++i) {
    connection.send(request_text("GET", "/echo?q=" + std::to_string(i)));
    const auto reply = read_reply(connection);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, std::to_string(i));
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  RawConnection connection(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += request_text("POST", "/echo", "body " + std::to_string(i));
  connection.send(all);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(read_reply(connection).body, "body " + std::to_string(i));
  }
}

TEST_F(HttpServerTest, TakesRequestsInPiecesOfOneByte) {
  start();
  RawConnection connection(server_->port());
  for (const std::string& text :
       {request_text("POST", "/echo", "hello"),
        std::string("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: t\r\n\r\n")}) {
    for (const char byte : text) ASSERT_TRUE(connection.send({&byte, 1}));
    EXPECT_EQ(read_reply(connection).body, "hello");
  }
}

TEST_F(HttpServerTest, HeadAnswersLikeGetWithoutABody) {
  start();
  RawConnection connection(server_->port());
  connection.send(request_text("HEAD", "/echo?q=four"));
  const auto reply = read_reply(connection, /*bodiless=*/true);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-length"), "4");
  connection.send(request_text("GET", "/echo?q=next"));
  EXPECT_EQ(read_reply(connection).body, "next");
}

TEST_F(HttpServerTest, EveryAnswerHasARequestId) {
  start();
  EXPECT_EQ(ask("GET", "/echo", "", "X-Request-Id: mine\r\n").headers.at("x-request-id"), "mine");
  for (const char* path : {"/echo", "/nothing", "/%zz"}) {
    EXPECT_THAT(ask("GET", path).headers.at("x-request-id"), HasSubstr("req-")) << path;
  }
  EXPECT_THAT(ask("GET", "/echo", "", "X-Request-Id: a b\r\n").headers.at("x-request-id"),
              HasSubstr("req-"));
}

TEST_F(HttpServerTest, RefusesWithOpenAisErrors) {
  start();
  EXPECT_EQ(code_of(ask("GET", "/nothing")), "route_not_found");
  const auto method = ask("DELETE", "/echo");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(ask("GET", "/echo", "a body").status, 400);
  EXPECT_EQ(ask("GET", "/%zz").status, 400);
  EXPECT_EQ(ask("GET", "/a/../b").status, 400);
  EXPECT_EQ(ask("POST", "/echo", "x", "Expect: tea\r\n").status, 400);
  EXPECT_EQ(ask("POST", "/echo", "x", "Host: other\r\n").status, 400);
  EXPECT_EQ(ask("POST", "/echo", "", "Transfer-Encoding: gzip, chunked\r\n").status, 400);
  EXPECT_EQ(ask("POST", "/echo", "xx", "Transfer-Encoding: chunked\r\n").status, 400);
}

TEST_F(HttpServerTest, KeepsTheConnectionAfterASmallRefusedBody) {
  start();
  RawConnection connection(server_->port());
  connection.send(request_text("POST", "/nothing", "a small body"));
  EXPECT_EQ(read_reply(connection).status, 404);
  connection.send(request_text("GET", "/echo?q=on"));
  EXPECT_EQ(read_reply(connection).body, "on");
}

TEST_F(HttpServerTest, HasLimitsForHeadersAndBodies) {
  start();
  const auto headers = ask("GET", "/echo", "", "X: " + std::string(20'000, 'x') + "\r\n");
  EXPECT_EQ(headers.status, 431);
  EXPECT_EQ(code_of(headers), "headers_too_large");
  RawConnection large(server_->port());
  large.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194305\r\n\r\n");
  const auto refused = read_reply(large);
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(code_of(refused), "too_large");
  EXPECT_EQ(ask("POST", "/echo", std::string(4 << 20, 'x')).body.size(), 4U << 20);
  // Chunked: the limit is met while it comes.
  RawConnection chunked(server_->port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  for (int i = 0; i < 5; ++i) chunked.send(chunk);
  EXPECT_EQ(read_reply(chunked).status, 413);
}

TEST_F(HttpServerTest, SaysContinueToThoseWhoWait) {
  start();
  RawConnection connection(server_->port());
  const std::string lines =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: ";
  connection.send(lines + "5\r\n\r\n");
  EXPECT_EQ(connection.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  connection.send("hello");
  EXPECT_EQ(read_reply(connection).body, "hello");
  RawConnection refused(server_->port());
  refused.send(lines + "99999999\r\n\r\n");
  EXPECT_EQ(read_reply(refused).status, 413);
}

TEST_F(HttpServerTest, StreamsABodyAndCountsIt) {
  start();
  EXPECT_EQ(ask("POST", "/upload", std::string(9 << 20, 'x')).body, std::to_string(9 << 20));
  EXPECT_EQ(ask("POST", "/upload", "x").body, "1");
  RawConnection chunked(server_->port());
  chunked.send("POST /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100; ++i) chunked.send("3\r\nabc\r\n");
  chunked.send("0\r\n\r\n");
  EXPECT_EQ(read_reply(chunked).body, "300");
}

TEST_F(HttpServerTest, Http10GetsAnAnswerAndTheEnd) {
  start();
  RawConnection connection(server_->port());
  connection.send("GET /echo?q=old HTTP/1.0\r\n\r\n");
  EXPECT_THAT(connection.read_all(), HasSubstr("\r\n\r\nold"));
  EXPECT_TRUE(connection.closed());
}

TEST_F(HttpServerTest, AHandlerThatFailsOrForgetsIs500) {
  start();
  for (const char* path : {"/forgotten", "/throws"}) {
    const auto reply = ask("GET", path);
    EXPECT_EQ(reply.status, 500) << path;
    EXPECT_EQ(code_of(reply), "internal");
    EXPECT_THAT(reply.body, ::testing::Not(HasSubstr("\"no\"")));
  }
}

TEST_F(HttpServerTest, ForeignPagesChangeNothingUnlessListed) {
  Server::Options options;
  options.origins.cors_origins = {"https://app.example"};
  start(options);
  EXPECT_EQ(ask("POST", "/echo", "x", "Origin: https://evil.example\r\n").status, 403);
  const auto listed = ask("POST", "/echo", "x", "Origin: https://app.example\r\n");
  EXPECT_EQ(listed.status, 200);
  EXPECT_EQ(listed.headers.at("access-control-allow-origin"), "https://app.example");
  const auto preflight = ask("OPTIONS", "/echo", "",
                             "Origin: https://app.example\r\n"
                             "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.headers.at("access-control-allow-methods"), HasSubstr("POST"));
  RawConnection rebound(server_->port());
  rebound.send("GET /echo HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(read_reply(rebound).status, 403);
}

TEST_F(HttpServerTest, CountsByPatternNeverByPath) {
  start();
  ask("GET", "/echo?q=1");
  ask("GET", "/secret/path");
  ask("GET", "/%zz");
  EXPECT_TRUE(support::eventually([&] {
    const std::string text = metrics_.text();
    return text.find("dex_http_requests_total{code=\"200\",route=\"/echo\"} 1") !=
               std::string::npos &&
           text.find("dex_http_requests_total{code=\"404\",route=\"unknown\"} 1") !=
               std::string::npos;
  })) << metrics_.text();
  EXPECT_THAT(metrics_.text(), ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace dex::gateway::http
