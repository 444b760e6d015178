#include <random>

#include "tests/integration/gateway/http_server_fixture.h"

// Clients that are slow, gone, or mean it.
namespace dex::gateway::http {
namespace {

using std::chrono::milliseconds;
using support::eventually;
using support::RawConnection;
using support::read_reply;
using support::request_text;

Server::Options impatient() {
  Server::Options options;
  options.header_timeout = options.idle_timeout = options.body_timeout = milliseconds(200);
  options.upload_idle = options.write_timeout = milliseconds(200);
  return options;
}

TEST_F(HttpServerTest, ClosesOnThoseWhoSendTooSlowly) {
  start(impatient());
  const std::string begun[] = {
      "", "GET /ec", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
      "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"};
  for (const auto& text : begun) {
    RawConnection connection(server_->port());
    connection.send(text);
    connection.read_all();
    EXPECT_TRUE(connection.closed()) << text;
  }
  // Also between two requests.
  RawConnection idle(server_->port());
  idle.send(request_text("GET", "/echo?q=1"));
  EXPECT_EQ(read_reply(idle).status, 200);
  idle.read_all();
  EXPECT_TRUE(idle.closed());
}

TEST_F(HttpServerTest, AnAnswerThatTakesLongIsNoIdleConnection) {
  start(impatient());
  RawConnection connection(server_->port());
  connection.send(request_text("GET", "/held"));
  const auto exchange = held(1).at(0);
  std::atomic<bool> later{false};
  exchange->after(milliseconds(600), [&] { later = true; });
  ASSERT_TRUE(eventually([&] { return later.load(); }));
  exchange->reply({200, "text/plain", "late", {}});
  EXPECT_EQ(read_reply(connection).body, "late");
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticed) {
  start();
  {
    RawConnection connection(server_->port());
    connection.send(request_text("GET", "/held"));
    held(1);
  }
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  // Who registers late hears it at once; what is written goes nowhere.
  const auto exchange = held(1).at(0);
  std::atomic<int> told{0};
  exchange->on_gone([&] { ++told; });
  exchange->reply({});
  exchange->write("x", [&](bool ok) { told += ok ? 100 : 1; });
  EXPECT_TRUE(eventually([&] { return told == 2; }));
}

// Writes whenever the last chunk was taken, and says how much that was.
void pour(const ExchangePtr& exchange, std::atomic<size_t>& taken) {
  exchange->write(std::string(64 << 10, 'x'), [exchange, &taken](bool ok) {
    if (!ok) return;
    taken += 64 << 10;
    pour(exchange, taken);
  });
}

TEST_F(HttpServerTest, AReaderThatTakesNothingStopsItsSourceAndIsCut) {
  start(impatient());
  RawConnection connection(server_->port());
  connection.send(request_text("GET", "/held"));
  std::atomic<size_t> taken{0};
  {
    const auto exchange = held(1).at(0);
    exchange->stream({});
    pour(exchange, taken);
  }
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  EXPECT_LT(taken, 64U << 20);  // what the kernel's buffers hold, not what was there
}

TEST_F(HttpServerTest, AnswersThatNobodyWaitsForAreBounded) {
  Server::Options options;
  options.waiting_bytes = 1 << 20;
  start(options);
  RawConnection connection(server_->port());
  connection.send(request_text("GET", "/held"));
  const auto exchange = held(1).at(0);
  exchange->stream({});
  for (int i = 0; i < 1000; ++i) exchange->write(std::string(64 << 10, 'x'), {});
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
}

TEST_F(HttpServerTest, AStreamThatIsLetGoOrCutLooksBroken) {
  start();
  RawConnection connection(server_->port());
  connection.send(request_text("GET", "/held"));
  held(1).at(0)->stream({});
  held(1).at(0)->write("half", {});
  {
    const std::lock_guard lock(mutex_);
    held_.clear();
  }
  const auto reply = read_reply(connection);
  EXPECT_EQ(reply.body, "half");
  EXPECT_FALSE(reply.whole);
}

TEST_F(HttpServerTest, TwoHundredStreamsNeedTwoThreads) {
  start();
  constexpr size_t kStreams = 200;
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawConnection>(server_->port()));
    ASSERT_TRUE(clients.back()->send(request_text("GET", "/held")));
  }
  const auto exchanges = held(kStreams);
  ASSERT_EQ(exchanges.size(), kStreams);
  std::vector<std::unique_ptr<SseStream>> streams;
  for (const auto& exchange : exchanges) streams.push_back(std::make_unique<SseStream>(exchange));
  for (int event = 0; event < 5; ++event) {
    for (const auto& stream : streams) stream->send({std::to_string(event), "", ""});
  }
  for (const auto& stream : streams) stream->end();
  for (const auto& client : clients) {
    const auto reply = read_reply(*client);
    ASSERT_TRUE(reply.whole);
    EXPECT_EQ(reply.body, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
  }
}

TEST_F(HttpServerTest, SilentStreamsAreKeptAlive) {
  start();
  RawConnection connection(server_->port());
  connection.send(request_text("GET", "/held"));
  Exchange::StreamStart begin;
  begin.keep_alive = ": keep-alive\n\n";
  begin.keep_alive_every = milliseconds(50);
  held(1).at(0)->stream(begin);
  // Two of them, each a chunk of 14 bytes.
  const std::string chunk = "e\r\n: keep-alive\n\n\r\n";
  EXPECT_THAT(connection.read_until(chunk + chunk), ::testing::EndsWith(chunk + chunk));
}

TEST_F(HttpServerTest, ADrainTellsStreamsRefusesRequestsAndStaysOpenForHealth) {
  start();
  RawConnection idle(server_->port());
  idle.send(request_text("GET", "/echo?q=1"));
  EXPECT_EQ(read_reply(idle).status, 200);
  RawConnection streaming(server_->port());
  streaming.send(request_text("GET", "/held"));
  const auto exchange = held(1).at(0);
  server_->drain();
  EXPECT_TRUE(eventually([&] { return drained_ == 1; }));
  EXPECT_FALSE(server_->wait_until_idle(std::chrono::steady_clock::now()));
  idle.read_all();
  EXPECT_TRUE(idle.closed());
  const auto refused = ask("GET", "/echo");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_EQ(ask("GET", "/open").status, 200);
  exchange->reply({200, "text/plain", "last", {}});
  EXPECT_EQ(read_reply(streaming).body, "last");
  EXPECT_TRUE(
      server_->wait_until_idle(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
}

TEST_F(HttpServerTest, TooManyConnectionsAreClosedAtOnce) {
  Server::Options options;
  options.connections = 3;
  start(options);
  std::vector<std::unique_ptr<RawConnection>> kept;
  for (int i = 0; i < 3; ++i) {
    kept.push_back(std::make_unique<RawConnection>(server_->port()));
    kept.back()->send(request_text("GET", "/echo?q=1"));
    EXPECT_EQ(read_reply(*kept.back()).status, 200);
  }
  RawConnection fourth(server_->port());
  EXPECT_EQ(fourth.read_all(), "");
  kept.pop_back();
  EXPECT_TRUE(eventually([&] { return ask("GET", "/echo?q=1").status == 200; }));
}

// Valid requests with bytes exchanged, taken out, doubled and cut.
std::string spoiled(std::mt19937& random) {
  const std::string whole[] = {
      request_text("GET", "/echo?q=%41", "", "Accept: */*\r\nX-Request-Id: a\r\n"),
      request_text("POST", "/echo", "hello", "Expect: 100-continue\r\n"),
      "POST /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n0\r\n"
      "\r\n",
      request_text("OPTIONS", "*") + request_text("HEAD", "/open"),
      request_text("DELETE", "/echo", "x", "Connection: close\r\nTransfer-Encoding: x\r\n")};
  std::string text = whole[random() % std::size(whole)];
  constexpr std::string_view kOdd("\0\r\n\x7f\xff %:;,0", 12);
  for (unsigned changes = random() % 6; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 4);
        break;
      case 2:
        text.insert(at, text.substr(at, random() % 30));
        break;
      case 3:
        text.insert(at, 1, kOdd[random() % kOdd.size()]);
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

TEST_F(HttpServerTest, AThousandSpoiledRequestsGiveNo500AndNoHang) {
  start();
  std::mt19937 random(20261130);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = spoiled(random);
    RawConnection connection(server_->port());
    ASSERT_TRUE(connection.connected());
    connection.send(text);
    connection.finish_sending();
    const std::string answer = connection.read_all();
    ASSERT_TRUE(connection.closed()) << "request " << i << " hangs: " << text;
    for (size_t at = answer.find("HTTP/1."); at != std::string::npos;
         at = answer.find("HTTP/1.", at + 1)) {
      EXPECT_NE(answer[at + 9], '5') << "request " << i << ": " << text << "\n" << answer;
    }
  }
  EXPECT_EQ(ask("GET", "/echo?q=alive").body, "alive");
}

}  // namespace
}  // namespace dex::gateway::http
