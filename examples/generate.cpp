// Loads a model and continues a text: generate MODEL_DIR PROMPT [NEW_TOKENS]
//
// MODEL_DIR is what `nought generate` takes: a Hugging Face folder, a GGUF file, a checkpoint, the output of a run.
#include "nought/infer/generate.h"

#include <cstdio>
#include <exception>
#include <string>

#include "nought/text/tokenizer.h"
#include "nought/weights/model_source.h"
#include "nought/zero/sharded_model.h"

using namespace nought;

/// Prints the text of tokens as they come.
class Printer final : public TokenSink {
 public:
  explicit Printer(const Tokenizer& tokenizer) : text_(tokenizer) {}
  bool on_token(size_t /*prompt*/, int32_t token) override {
    std::fputs(text_.push(token).c_str(), stdout);
    std::fflush(stdout);
    return true;
  }
  void on_end(size_t /*prompt*/) override { std::printf("%s\n", text_.finish().c_str()); }

 private:
  StreamDecoder text_;
};

int main(int count, char** arguments) {
  try {
    if (count < 3) throw Error("usage: generate MODEL_DIR PROMPT [NEW_TOKENS]");
    const ModelSource source(arguments[1]);
    const Context context = Context::cpu();
    const auto world = make_self_communicator();
    Decoder decoder(source.config());
    ShardedModel model(context, *world, decoder, {.dtype = source.dtype(), .training = false});
    model.load(source.weights());

    const auto tokenizer = make_tokenizer(source.tokenizer());
    std::vector<int32_t> prompt(tokenizer->prefix().begin(), tokenizer->prefix().end());
    tokenizer->encode(arguments[2], prompt);
    GenerateOptions options;
    if (count > 3) options.max_new_tokens = std::stol(arguments[3]);
    for (const int64_t id : source.config().eos_token_ids) options.stop_ids.push_back(static_cast<int32_t>(id));
    Printer printer(*tokenizer);
    generate(decoder, context, source.dtype(), std::span(&prompt, 1), options, printer);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "generate: error: %s\n", error.what());
    return 1;
  }
}
