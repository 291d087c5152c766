#include "nought/bench/load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/serve/event_stream.h"

namespace nought {

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

constexpr int64_t kWarmTokens = 16;

constexpr std::array<std::string_view, 32> kWords{
    "river", "stone", "bread", "light", "green", "table", "water", "cloud", "paper", "house", "music",
    "train", "glass", "field", "sugar", "plant", "night", "metal", "chair", "ocean", "smile", "wheel",
    "grass", "apple", "brush", "floor", "heart", "sound", "earth", "fruit", "horse", "candle"};

void append_words(std::string& text, Random& random, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % kWords.size()];
  }
}

/// What an error body says, or its beginning.
std::string message_of(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const Json& error = json["error"];
    if (error.is_string()) return error.get<std::string>();
    if (error.is_object() && error.contains("message") && error["message"].is_string())
      return error["message"].get<std::string>();
  }
  return one_line(std::string_view(body).substr(0, 200));
}

/// A number within an object, 0 if it is not there.
int64_t count_at(const Json& object, const char* name) {
  if (!object.is_object()) return 0;
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

bool is_text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() && !found->get_ref<const std::string&>().empty();
}

/// Whether an event of a stream brings text.
bool brings_text(const Json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty() || !(*choices)[0].is_object()) return false;
  const Json& choice = (*choices)[0];
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return is_text(choice, "text");
  return is_text(*delta, "content") || is_text(*delta, "reasoning_content") || is_text(*delta, "reasoning");
}

}  // namespace

TokenRange parse_token_range(const std::string& text, const std::string& option) {
  TokenRange range;
  const char* const end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, range.least);
  bool is_good = error == std::errc();
  range.most = range.least;
  if (is_good && stop != end) {
    const auto [last, failed] = std::from_chars(stop + 1, end, range.most);
    is_good = *stop == '-' && failed == std::errc() && last == end;
  }
  constexpr int64_t kMost = int64_t{1} << 24;
  require<ConfigError>(is_good && 1 <= range.least && range.least <= range.most && range.most <= kMost,
                       "{} {}: expected a number of tokens, or two of them, as 256-1024", option, text);
  return range;
}

LoadGenerator::LoadGenerator(const HttpAddress& address, LoadOptions options)
    : client_(address, options.timeout_seconds),
      server_(fmt::format("http://{}:{}", address.host, address.port)),
      path_(address.path.empty() ? "/v1" : address.path),
      options_(std::move(options)) {
  if (options_.model.empty()) {
    const Json models = ask("GET", path_ + "/models", "");
    const Json none = Json::array();
    const Json& data = models.is_object() && models.contains("data") ? models["data"] : none;
    require<ConfigError>(data.is_array() && !data.empty() && data[0].is_object() && is_text(data[0], "id"),
                         "{}{}/models names no model: say which with --model", server_, path_);
    options_.model = data[0]["id"].get<std::string>();
  }
  // Prompts of n and 3n words tell the tokens of a word, and those around the words. They warm the server up, too.
  const int64_t words = std::clamp<int64_t>(options_.prompt_tokens.least / 24, 1, 32);
  std::array<double, 2> tokens{};
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string text;
    Random random(options_.seed + i);
    append_words(text, random, i == 0 ? words : 3 * words);
    const Json answer =
        ask("POST", completions(), body_of(text, std::min(options_.answer_tokens.least, kWarmTokens)).dump());
    tokens[i] = static_cast<double>(count_at(answer.value("usage", Json()), "prompt_tokens"));
    require<ConfigError>(tokens[i] > 0, "{}{} does not tell how many tokens a prompt has (usage.prompt_tokens)",
                         server_, completions());
  }
  tokens_per_word_ = std::max((tokens[1] - tokens[0]) / static_cast<double>(2 * words), 0.1);
  tokens_around_ = std::max(tokens[0] - tokens_per_word_ * static_cast<double>(words), 0.0);
}

HttpCall LoadGenerator::call(const std::string& method, const std::string& target, std::string body) const {
  HttpCall call{.method = method, .target = target, .body = std::move(body)};
  if (!call.body.empty()) call.headers.emplace_back("Content-Type", "application/json");
  if (!options_.key.empty()) call.headers.emplace_back("Authorization", "Bearer " + options_.key);
  return call;
}

Json LoadGenerator::ask(const std::string& method, const std::string& target, const std::string& body) {
  std::string answer, failed;
  int code = 0;
  HttpCall asked = call(method, target, body);
  asked.on_piece = [&](int, std::string_view piece) { answer += piece; };
  asked.on_end = [&](int status, const std::string& error) {
    code = status;
    failed = error;
  };
  client_.send(std::move(asked));
  client_.run();
  require<ConfigError>(failed.empty(), "{}{}: {}", server_, target, failed);
  require<ConfigError>(code == 200, "{}{}: status {}: {}", server_, target, code, message_of(answer));
  Json json = Json::parse(answer, nullptr, false);
  require<ConfigError>(json.is_object(), "{}{}: expected an object of JSON, found {}", server_, target,
                       one_line(answer.substr(0, 80)));
  return json;
}

Json LoadGenerator::body_of(const std::string& prompt, int64_t answer_tokens) const {
  Json body{{"model", options_.model}, {"max_tokens", answer_tokens}, {"temperature", 0}};
  if (options_.chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  } else {
    body["prompt"] = prompt;
  }
  if (!options_.lets_end) body["ignore_eos"] = true;
  return body;
}

int64_t LoadGenerator::words_of(int64_t tokens) const {
  return std::max<int64_t>(std::llround(static_cast<double>(tokens) / tokens_per_word_), 0);
}

std::string LoadGenerator::prompt(int64_t number, int64_t tokens) const {
  std::string text;
  const int64_t all = std::max<int64_t>(words_of(tokens - std::llround(tokens_around_)), 1);
  const int64_t shared = std::min(words_of(options_.shared_tokens), all);
  const auto prefix = static_cast<uint64_t>(number % options_.prefixes);
  Random common(options_.seed * 1000003 + prefix),
      own(options_.seed * 1000003 + (levels_ << 32) + static_cast<uint64_t>(number) + (uint64_t{1} << 20));
  append_words(text, common, shared);
  append_words(text, own, all - shared);
  return text;
}

/// The requests of one level.
class LoadGenerator::Level {
 public:
  Level(LoadGenerator& owner, const LoadLevel& level)
      : owner_(owner), run_{.level = level}, random_(owner.options_.seed * 1000003 + owner.levels_) {
    run_.requests.resize(static_cast<size_t>(level.requests));
  }
  LoadRun run() {
    // All prompts are written before the first is sent.
    for (int64_t i = 0; i < run_.level.requests; ++i) {
      Json body =
          owner_.body_of(owner_.prompt(i, draw(owner_.options_.prompt_tokens)), draw(owner_.options_.answer_tokens));
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
      bodies_.push_back(body.dump());
    }
    begin_ = Clock::now();
    double moment = 0;
    for (size_t i = 0; run_.level.rate > 0 && i < bodies_.size(); ++i) {
      owner_.client_.after(moment, [this, i, moment] { send(i, moment); });
      moment += std::exponential_distribution<double>(run_.level.rate)(random_);
    }
    for (int64_t i = 0; i < run_.level.clients; ++i) send_next();
    owner_.client_.run();
    for (const RequestTiming& each : run_.requests) run_.seconds = std::max(run_.seconds, each.end);
    return std::move(run_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  int64_t draw(const TokenRange& range) {
    return std::uniform_int_distribution<int64_t>(range.least, range.most)(random_);
  }
  void send_next() {
    if (next_ < bodies_.size()) send(next_++, now());
  }
  /// begin: the moment at which a client asks, whenever it came to be sent.
  void send(size_t number, double begin) {
    RequestTiming& timing = run_.requests[number];
    timing.begin = begin;
    struct Heard {
      EventStream events = {};
      std::string body = {};
      bool is_whole = false;
    };
    const auto heard = std::make_shared<Heard>();
    HttpCall call = owner_.call("POST", owner_.completions(), std::move(bodies_[number]));
    call.on_piece = [this, heard, &timing](int status, std::string_view piece) {
      if (status != 200) {
        heard->body += piece;
        return;
      }
      const double moment = now();
      heard->events.push(piece, [&](const std::string& data) {
        if (data == "[DONE]") heard->is_whole = true;
        take(data, moment, timing);
      });
    };
    call.on_end = [this, heard, &timing](int status, const std::string& error) {
      timing.end = now();
      if (timing.error.empty() && status != 200 && status != 0)
        timing.error = fmt::format("status {}: {}", status, message_of(heard->body));
      if (timing.error.empty() && !heard->is_whole) timing.error = error.empty() ? "the stream has no [DONE]" : error;
      if (timing.error.empty() && timing.texts.empty()) timing.error = "no text came";
      if (timing.answer_tokens == 0) timing.answer_tokens = std::ssize(timing.texts);  // a server that does not count
      if (run_.level.rate == 0) send_next();
    };
    owner_.client_.send(std::move(call));
  }
  static void take(const std::string& data, double moment, RequestTiming& timing) {
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) return;
    if (event.contains("error")) timing.error = message_of(data);
    if (brings_text(event)) timing.texts.push_back(moment);
    const auto usage = event.find("usage");
    if (usage == event.end() || !usage->is_object()) return;
    timing.prompt_tokens = count_at(*usage, "prompt_tokens");
    timing.answer_tokens = count_at(*usage, "completion_tokens");
    timing.cached_tokens = count_at(usage->value("prompt_tokens_details", Json()), "cached_tokens");
  }

  LoadGenerator& owner_;
  LoadRun run_;
  Random random_;
  std::vector<std::string> bodies_;
  Clock::time_point begin_;
  size_t next_ = 0;
};

LoadRun LoadGenerator::run(const LoadLevel& level) {
  ++levels_;
  return Level(*this, level).run();
}

}  // namespace nought
