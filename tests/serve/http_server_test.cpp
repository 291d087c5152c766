#include "nought/serve/http_server.h"

#include <atomic>
#include <mutex>

#include "serve/http_client.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::http_server_test {
namespace {

using test::Client;
using test::eventually;
using test::post;
using test::Serving;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  reply->send(200, "text/plain", request.method + " " + request.path + " " + request.body);
}

TEST(HttpServer, answers_requests_of_one_connection_in_order) {
  Serving serving(echo);
  Client client(serving.port());
  client.send(post("/a?x=1", "first") + post("/b", "second") + "GET /c HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string all = client.read_all();
  const size_t first = all.find("POST /a first"), second = all.find("POST /b second"), third = all.find("GET /c ");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
}

TEST(HttpServer, takes_bytes_one_by_one_chunks_and_expectations) {
  Serving serving(echo);
  Client slow(serving.port());
  for (const char each : post("/slow", "abc")) slow.send(std::string(1, each));
  EXPECT_THAT(slow.read_to("abc"), HasSubstr("POST /slow abc"));
  slow.send("POST /chunks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(slow.read_to("abcde"), HasSubstr("POST /chunks abcde"));
  slow.send("POST /expects HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_THAT(slow.read_to("Continue\r\n\r\n"), HasSubstr("100"));
  slow.send("ok");
  EXPECT_THAT(slow.read_to(" ok"), HasSubstr("POST /expects ok"));
}

TEST(HttpServer, refuses_what_is_malformed_or_too_long) {
  Serving serving(echo, {.body_bytes = 100, .header_bytes = 1000});
  const auto answer = [&](const std::string& bytes) {
    Client client(serving.port());
    client.send(bytes);
    return client.read_all();
  };
  EXPECT_THAT(answer(post("/a", std::string(101, 'x'))), HasSubstr("HTTP/1.1 413 "));
  EXPECT_THAT(answer("POST / HTTP/1.1\r\nX: " + std::string(2000, 'x')), HasSubstr("HTTP/1.1 431 "));
  EXPECT_THAT(answer("this is no request\r\n\r\n"), HasSubstr("HTTP/1.1 400 "));
  EXPECT_THAT(answer("GET / HTTP/1.0\r\n\r\n"), HasSubstr("Connection: close"));
}

TEST(HttpServer, what_a_handler_throws_is_an_answer) {
  Serving serving([](const HttpRequest&, const std::shared_ptr<HttpReply>&) { fail("broken"); });
  Client client(serving.port());
  client.send(post("/", ""));
  EXPECT_THAT(client.read_to("broken"), HasSubstr("HTTP/1.1 500 "));
}

/// Keeps the replies of requests, and counts the clients that go.
struct Kept {
  void operator()(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->on_gone([this] { ++gone; });
    const std::lock_guard lock(mutex);
    replies.push_back(reply);
    ++count;
  }
  HttpReply& wait(size_t index) {
    EXPECT_TRUE(eventually([&] { return count > static_cast<int>(index); }));
    const std::lock_guard lock(mutex);
    return *replies.at(index);
  }
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> replies;
  std::atomic<int> gone = 0, count = 0;
};

TEST(HttpServer, streams_pieces_and_knows_when_a_client_goes) {
  Kept kept;
  Serving serving(std::ref(kept));
  {
    Client stays(serving.port());
    stays.send(post("/", ""));
    HttpReply& reply = kept.wait(0);
    reply.begin("text/event-stream");
    reply.write("first");
    EXPECT_THAT(stays.read_to("5\r\nfirst\r\n"), HasSubstr("Transfer-Encoding: chunked"));
    reply.finish();
    EXPECT_THAT(stays.read_to("0\r\n\r\n"), HasSubstr("0\r\n\r\n"));
    reply.write("late");  // is dropped
    stays.send(post("/", ""));
    kept.wait(1).send(200, "text/plain", "next");
    EXPECT_THAT(stays.read_to("next"), HasSubstr("HTTP/1.1 200 OK"));
  }
  EXPECT_EQ(kept.gone, 0) << "its answers were whole";
  Client closes(serving.port()), resets(serving.port()), closes_half(serving.port());
  for (Client* each : {&closes, &resets, &closes_half}) each->send(post("/", ""));
  EXPECT_TRUE(eventually([&] { return kept.count == 5; }));
  kept.wait(2).begin("text/event-stream");
  resets.reset();
  closes_half.close_half();
  EXPECT_TRUE(eventually([&] { return kept.gone == 2; }));
  EXPECT_TRUE(eventually([&] { return serving.server.connections() == 1; }));
}

TEST(HttpServer, a_client_that_does_not_read_is_let_go) {
  Kept kept;
  Serving serving(std::ref(kept), {.unsent_bytes = 1 << 16});
  Client client(serving.port());
  client.send(post("/", ""));
  HttpReply& reply = kept.wait(0);
  reply.begin("text/event-stream");
  for (int i = 0; i < 2000 && kept.gone == 0; ++i) {
    reply.write(std::string(1 << 16, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(eventually([&] { return kept.gone == 1; }));
}

TEST(HttpServer, holds_many_connections_and_refuses_more_than_its_limit) {
  Serving serving(echo, {.connections = 200});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(serving.port()));
  for (const auto& each : clients) each->send(post("/many", "x"));
  for (const auto& each : clients) EXPECT_THAT(each->read_to("/many x"), HasSubstr("200 OK"));
  Client more(serving.port());
  EXPECT_THAT(more.read_all(), HasSubstr("HTTP/1.1 503 "));
  clients.clear();
  EXPECT_TRUE(eventually([&] { return serving.server.connections() == 0; }));
}

TEST(HttpServer, silent_clients_are_let_go) {
  Serving serving(echo, {.request_seconds = 0.05, .idle_seconds = 0.1});
  Client idle(serving.port()), half(serving.port());
  half.send("POST / HTTP/1.1\r\nContent-Le");
  EXPECT_EQ(half.read_all(), "");
  EXPECT_EQ(idle.read_all(), "");
}

TEST(HttpServer, a_port_in_use_is_one_line) {
  Serving serving(echo);
  EXPECT_THAT([&] { HttpServer("127.0.0.1", serving.port(), {}, echo, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("Address already in use; --port names another port")));
  EXPECT_THAT([&] { HttpServer("nowhere", 0, {}, echo, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("--host nowhere: expected an address")));
}

}  // namespace
}  // namespace nought::http_server_test
