// nought chat: a conversation in the terminal.
#include <csignal>
#include <memory>

#include <unistd.h>

#include "nought/chat/chat_template.h"
#include "nought/chat/conversation.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/cli/line_reader.h"
#include "nought/cli/speculation.h"
#include "nought/infer/text_stream.h"
#include "nought/io/files.h"

namespace nought {

namespace {

struct ChatFlags : GenerationOptions {
  std::string system, chat_template, tools_file;
  LaunchOptions launch;
  int64_t context = 4096;
};

/// What --tools gives to the chat template.
jinja::Value tools_of(const std::string& path) {
  if (path.empty()) return {};
  const OrderedJson tools = OrderedJson::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  require<ConfigError>(tools.is_array(), "--tools {}: expected a JSON list, [{{\"type\": \"function\", ...}}, ...]",
                       path);
  return template_variables({{"tools", tools}});
}

/// While it lives, Ctrl-C is remembered instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard() {
    pressed_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { pressed_ = 1; };
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool pressed() { return pressed_ != 0; }

 private:
  static inline volatile std::sig_atomic_t pressed_ = 0;
  struct sigaction before_ {};
};

/// Prints a reply as it comes and keeps it.
class Reply final : public TokenSink {
 public:
  Reply(const Tokenizer& tokenizer, const std::vector<std::string>& stops) : stream_(tokenizer, stops) {}
  bool on_token(size_t, int32_t token) override {
    show(stream_.push(token));
    return !stream_.stopped() && !InterruptGuard::pressed();
  }
  void on_end(size_t) override { show(stream_.finish() + "\n"), text_.pop_back(); }
  const std::string& text() const { return text_; }

 private:
  void show(const std::string& text) {
    text_ += text;
    fmt::print("{}", text);
    flush_printed(stdout);
  }

  TextStream stream_;
  std::string text_;
};

class Conversation {
 public:
  Conversation(ChatFlags& options, Communicator& self, const Context& context)
      : options_(options),
        model_(options, self, context),
        template_(model_.chat_source(options.chat_template), model_.tokenizer()),
        tools_(tools_of(options.tools_file)),
        generator_(model_.decoder(), model_.context(), model_.dtype(), room(), 1, options.generate.kv_dtype,
                   make_speculation(options, model_, {.capacity = room(), .sequences = 1})) {
    model_.require_tokenizer();
    model_.tokenizer().check_fits(model_.decoder().config().vocab_size);
    use_generation_config(model_.folder(), options_, /*says=*/true);
    options_.generate.stop_ids = model_.stop_ids(/*of_text=*/false);
    for (const int32_t id : template_.stop_ids()) options_.generate.stop_ids.push_back(id);
    const std::vector<std::string> missing = template_.missing_markers();
    options_.stops.insert(options_.stops.end(), missing.begin(), missing.end());
    TextStream(model_.tokenizer(), options_.stops);  // says now if one of them makes no sense
    for (const std::string& marker : missing)
      fmt::print(stderr, "[the tokenizer has no token {}: it is written as text]\n", marker);
    clear();
  }

  void clear() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }
  /// Prints the reply to a message, which joins the conversation.
  void answer(const std::string& message) {
    messages_.push_back({"user", message});
    const std::vector<int32_t> prompt = template_.prompt(messages_, tools_);
    if (static_cast<int64_t>(prompt.size()) >= room()) {
      fmt::print(stderr, "[the conversation has {} tokens, there is room for {}: /clear begins anew]\n", prompt.size(),
                 room());
      messages_.pop_back();
      return;
    }
    Reply reply(model_.tokenizer(), options_.stops);
    const InterruptGuard guard;
    generator_.run(std::span(&prompt, 1), options_.generate, reply);
    messages_.push_back({"assistant", reply.text()});
  }
  const std::string& template_name() const { return template_.name(); }

 private:
  /// Tokens that a conversation may have.
  int64_t room() { return std::min(options_.context, model_.decoder().config().most_cached()); }

  ChatFlags& options_;
  LoadedModel model_;
  ChatTemplate template_;
  jinja::Value tools_;
  Generator generator_;
  std::vector<ChatMessage> messages_;
};

constexpr const char* kChatHelp =
    "/clear  begins a new conversation\n"
    "/help   shows this\n"
    "/exit   ends, as Ctrl-D does\n"
    "Ctrl-C  ends a reply\n"
    "What else is typed is a message. On a terminal the arrow keys edit it and bring back earlier ones.\n";

/// A slash and one word.
bool looks_like_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' && line.find_first_of(" /", 1) == std::string::npos;
}

void run_chat(ChatFlags& options, Communicator& self, const Context& context) {
  options.generate.validate();
  options.speculation.check();
  require<ConfigError>(2 <= options.context && options.context <= kMostTokens, "--context must be 2 to {}, got {}",
                       kMostTokens, options.context);
  Conversation conversation(options, self, context);
  fmt::print(stderr, "[template {}; /help shows what else can be said]\n", conversation.template_name());
  const bool edits = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  LineReader reader(stdin, stdout, edits, "> ");
  while (const std::optional<std::string> line = reader.next()) {
    if (*line == "/exit") return;
    if (*line == "/clear") {
      conversation.clear();
    } else if (*line == "/help") {
      fmt::print(stderr, "{}", kChatHelp);
    } else if (looks_like_command(*line)) {
      fmt::print(stderr, "[{} is no command: /help lists them]\n", *line);
    } else if (!line->empty()) {
      conversation.answer(*line);
    }
    flush_printed(stdout);
  }
}

}  // namespace

void add_chat(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "chat", "Talks with a model in the terminal",
      {"nought chat MODEL_DIR", "nought chat MODEL_DIR --chat-template chatml --system 'Be brief.' --top-p 0.9"});
  const auto options = std::make_shared<ChatFlags>();
  options->generate.max_new_tokens = 1024;
  add_generation_options(*command, *options);
  command->add_option("--system", options->system, "What the model is told before the conversation")->type_name("TEXT");
  command->add_option("--chat-template", options->chat_template,
                      fmt::format("How conversations are written: a Jinja file, or one of {}; default: the model's own",
                                  chat_format_names()));
  command
      ->add_option("--tools", options->tools_file,
                   "A JSON list of the tools that the model may call, for its chat template; a call is printed as text")
      ->type_name("FILE");
  command->add_option("--context", options->context, "Tokens that a conversation may have")->capture_default_str();
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return launch(
          invocation, options->launch, [] {},
          [&](Communicator& self, const Context& context) { run_chat(*options, self, context); });
    };
  });
}

}  // namespace nought
