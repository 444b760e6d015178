#include "services/monitor/http_server.h"

#include <gmock/gmock.h>

#include <vector>

#include "tests/support/http_client.h"

namespace dex::monitor {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using support::RawConnection;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServer::Options options = {}) {
    auto started = HttpServer::start(std::move(options), [](const HttpRequest& request) {
      return HttpResponse{200,
                          "text/plain",
                          request.method + " " + request.path + " ? " + request.query + " # " +
                              std::to_string(request.body.size()) + "\n",
                          {}};
    });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, HandsOutMethodPathAndQuery) {
  start();
  EXPECT_THAT(support::http_get(server_->port(), "/a%20b?c=d"),
              HasSubstr("GET /a%20b ? c=d # 0\n"));
}

TEST_F(HttpServerTest, KeepsTheConnectionForTheNextRequest) {
  start();
  RawConnection connection(server_->port());
  for (const char* path : {"/1", "/2", "/3"}) {
    connection.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(connection.read_until("# 0\n"), HasSubstr(path));
  }
}

TEST_F(HttpServerTest, AHeaderThatNeverEndsIsCutInTime) {
  HttpServer::Options options;
  options.read_timeout = milliseconds(200);
  start(options);
  const auto before = steady_clock::now();
  RawConnection silent(server_->port());
  RawConnection slow(server_->port());
  slow.send("GET / HTTP/1.1\r\nX-A: ");
  EXPECT_EQ(slow.read_all(), "");
  EXPECT_TRUE(slow.closed());
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(10));
}

TEST_F(HttpServerTest, HugeHeadersAreRefused) {
  start();
  RawConnection many(server_->port());
  std::string request = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i)
    request += "X-" + std::to_string(i) + ": " + std::string(50, 'x') + "\r\n";
  many.send(request + "\r\n");
  EXPECT_THAT(many.read_until("\r\n"), StartsWith("HTTP/1.1 431 "));
  RawConnection one(server_->port());
  one.send("GET / HTTP/1.1\r\nX: ");
  const std::string piece(64 << 10, 'x');
  int sent = 0;
  while (sent < 1000 && one.send(piece)) ++sent;
  EXPECT_LT(sent, 1000);  // it is not read for ever
}

TEST_F(HttpServerTest, BodiesAreBounded) {
  HttpServer::Options options;
  options.body_bytes = 10;
  start(options);
  RawConnection fits(server_->port());
  fits.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789");
  EXPECT_THAT(fits.read_until("# 10\n"), HasSubstr("POST"));
  RawConnection large(server_->port());
  large.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n0123456789a");
  EXPECT_THAT(large.read_all(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, GarbageGetsAnErrorAndAnEnd) {
  start();
  RawConnection garbage(server_->port());
  garbage.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_THAT(garbage.read_all(), StartsWith("HTTP/1.1 400 "));
  EXPECT_TRUE(garbage.closed());
}

TEST_F(HttpServerTest, ConnectionsAreBounded) {
  HttpServer::Options options;
  options.connections = 2;
  start(options);
  RawConnection first(server_->port());
  RawConnection second(server_->port());
  for (auto* held : {&first, &second}) {
    held->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(held->read_until("# 0\n"), HasSubstr("GET"));
  }
  RawConnection third(server_->port());
  EXPECT_EQ(third.read_all(), "");
  EXPECT_TRUE(third.closed());
}

TEST_F(HttpServerTest, BadAddressesAndTakenPortsAreExplained) {
  start();
  for (const std::string address :
       {"", "80", "host.example:80", "127.0.0.1:70000", "127.0.0.1:x"}) {
    HttpServer::Options options;
    options.address = address;
    const auto refused =
        HttpServer::start(options, [](const HttpRequest&) { return HttpResponse(); });
    ASSERT_FALSE(refused.ok()) << address;
    EXPECT_THAT(refused.status().message(), HasSubstr("'" + address + "'"));
  }
  HttpServer::Options options;
  options.address = server_->address();
  const auto taken = HttpServer::start(options, [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.status().message(), HasSubstr("in use"));
}

TEST_F(HttpServerTest, StopsWithOpenConnections) {
  start();
  RawConnection open(server_->port());
  open.send("GET / HT");
  server_.reset();
  EXPECT_EQ(open.read_all(), "");
}

}  // namespace
}  // namespace dex::monitor
