#include "nought/serve/http_client.h"

#include "serve/http_client.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/serve/event_stream.h"

namespace nought::http_client_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A server that gives back what it gets: whole, in pieces ("/pieces"), without an end ("/half"), or never ("/never").
void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (request.path == "/never") return;
  if (request.path != "/pieces" && request.path != "/half")
    return reply->send(request.path == "/bad" ? 418 : 200, "text/plain",
                       request.method + " " + request.authorization + " " + request.body);
  reply->begin("text/event-stream");
  for (size_t at = 0; at < request.body.size(); at += 5) reply->write(request.body.substr(at, 5));
  if (request.path != "/half") reply->finish();
}

struct Answer {
  std::string body, error;
  int status = -1, ends = 0;
};
HttpCall call_of(const std::string& target, const std::string& body, Answer& answer) {
  return {.method = body.empty() ? "GET" : "POST",
          .target = target,
          .body = body,
          .headers = {{"Authorization", "Bearer key"}, {"Content-Type", "application/json"}},
          .on_piece = [&](int, std::string_view piece) { answer.body += piece; },
          .on_end =
              [&](int status, const std::string& error) {
                answer.status = status;
                answer.error = error;
                ++answer.ends;
              }};
}

TEST(HttpClient, many_answers_are_heard_at_once) {
  test::Serving serving(echo);
  HttpClient client({.host = "127.0.0.1", .port = serving.port()}, 10);
  std::vector<Answer> answers(36);
  const std::string longer(20000, 'x');
  for (size_t i = 0; i < answers.size(); ++i)
    client.send(call_of(i % 3 == 0   ? "/bad"
                        : i % 3 == 1 ? "/pieces"
                                     : "/",
                        i % 4 == 0   ? ""
                        : i % 4 == 1 ? longer
                                     : "ab",
                        answers[i]));
  client.run();
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::string body = i % 4 == 0 ? "" : i % 4 == 1 ? longer : "ab";
    EXPECT_EQ(answers[i].ends, 1);
    EXPECT_EQ(answers[i].error, "");
    EXPECT_EQ(answers[i].status, i % 3 == 0 ? 418 : 200);
    EXPECT_EQ(answers[i].body, i % 3 == 1 ? body : (body.empty() ? "GET" : "POST") + (" Bearer key " + body)) << i;
  }
}

TEST(HttpClient, what_does_not_come_ends_with_a_line) {
  test::Serving serving(echo);
  Answer half, late, nobody;
  int timers = 0;
  HttpClient client({.host = "127.0.0.1", .port = serving.port()}, 0.3);
  client.after(0.01, [&] {
    ++timers;
    client.send(call_of("/never", "ab", late));
    client.after(0, [&] { ++timers; });
  });
  client.send(call_of("/half", "abcdefgh", half));
  client.run();
  EXPECT_EQ(timers, 2);
  EXPECT_EQ(half.body, "abcdefgh");
  EXPECT_THAT(half.error, HasSubstr("within the answer: "));
  EXPECT_THAT(late.error, HasSubstr("waiting for an answer: "));
  EXPECT_EQ(late.status, 0);
  const uint16_t port = test::Serving(echo).port();
  HttpClient alone({.host = "127.0.0.1", .port = port}, 10);
  alone.send(call_of("/", "", nobody));
  alone.run();
  EXPECT_THAT(nobody.error, HasSubstr("connecting: "));
}

TEST(HttpClient, addresses_are_those_of_http) {
  const HttpAddress whole = parse_http_address("http://[::1]:8080/a/v1/");
  EXPECT_EQ(whole.host, "::1");
  EXPECT_EQ(whole.port, 8080);
  EXPECT_EQ(whole.path, "/a/v1");
  const HttpAddress plain = parse_http_address("http://host");
  EXPECT_EQ(plain.host, "host");
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.path, "");
  for (const char* bad :
       {"host:80", "http://", "http://:80", "http://a:", "http://a:8x", "http://a:99999", "http://[::1"})
    EXPECT_THAT(test::message_of<ConfigError>([&] { parse_http_address(bad); }), HasSubstr("expected http://")) << bad;
  EXPECT_THAT(test::message_of<ConfigError>([] { parse_http_address("https://a"); }),
              HasSubstr("TLS is not supported"));
}

TEST(EventStream, events_are_the_same_however_they_are_cut) {
  const std::string text =
      ": note\n\ndata: {\"a\"}\n\nevent: x\r\ndata:b\r\ndata: c\r\n\r\nid: 7\n\ndata: [DONE]\n\ndata: rest\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string> events;
    EventStream stream;
    for (size_t at = 0; at < text.size(); at += size)
      stream.push(std::string_view(text).substr(at, size), [&](const std::string& data) { events.push_back(data); });
    EXPECT_THAT(events, ElementsAre("{\"a\"}", "b\nc", "[DONE]"));
  }
}

}  // namespace
}  // namespace nought::http_client_test
