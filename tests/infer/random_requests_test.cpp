// Requests of every kind, at random moments and beside each other, against each of them alone.
#include <random>

#include "support/golden.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

#include "nought/comm/mesh.h"
#include "nought/comm/thread.h"
#include "nought/infer/generate.h"
#include "nought/infer/generation_mesh.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::random_requests_test {
namespace {

struct Heard final : RequestListener {
  void on_start(int64_t reused) override { cached = reused; }
  bool on_token(const ScoredToken& token) override { return tokens.push_back(token.id), true; }
  void on_end(FinishReason why, std::exception_ptr) override { reason = why; }
  int64_t cached = 0;
  std::vector<int32_t> tokens;
  std::optional<FinishReason> reason;
};

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int64_t below(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most)); }
  bool one_in(int64_t most) { return below(most) == 0; }

 private:
  std::mt19937_64 random_;
};

constexpr int64_t kCapacity = 96;

/// The next requests: one, or the choices of one prompt, which may begin as others do.
std::vector<InferenceRequest> next_requests(Dice& dice, int64_t vocab_size) {
  InferenceRequest request{.max_new_tokens = 1 + dice.below(12)};
  if (dice.one_in(2))
    for (int32_t id = 0; id < 24; ++id) request.prompt.push_back((id * id + 3) % 97);
  for (int64_t left = 1 + dice.below(dice.one_in(4) ? 60 : 8); left > 0; --left)
    request.prompt.push_back(static_cast<int32_t>(dice.below(vocab_size)));
  request.sampling = {.temperature = dice.one_in(2) ? 0.0 : 0.8,
                      .top_k = dice.below(2) * 20,
                      .top_p = 0.95,
                      .repetition_penalty = dice.one_in(3) ? 1.2 : 1.0,
                      .seed = static_cast<uint64_t>(dice.below(1000))};
  std::vector<InferenceRequest> choices(static_cast<size_t>(dice.one_in(4) ? 3 : 1), request);
  for (size_t i = 0; i < choices.size(); ++i) choices[i].sampling.seed += i;
  return choices;
}

struct Layout {
  const char* name;
  int ranks;
  GenerationSizes sizes;
};

void run_requests(const char* model_name, const Layout& layout, std::optional<DType> kv_dtype, size_t count,
                  unsigned seed) {
  run_ranks(layout.ranks, [&](Communicator& world, const Context& context) {
    SCOPED_TRACE(fmt::format("{}, {}, seed {}", model_name, layout.name, seed));
    const std::string folder = test::golden_folder(model_name);
    const ModelConfig config = ModelConfig::from_folder(folder);
    const Mesh mesh(world, generation_mesh(config, world.size(), layout.sizes));
    Decoder decoder(config, {}, {}, ModelRanks(mesh));
    ShardedModel model(context, mesh, decoder, {.dtype = DType::bf16, .training = false});
    model.load(HfWeights(folder, decoder));
    Dice dice(seed);
    std::vector<InferenceRequest> requests;
    while (requests.size() < count)
      for (InferenceRequest& each : next_requests(dice, config.vocab_size)) requests.push_back(std::move(each));
    struct Silent final : TokenSink {
      bool on_token(size_t, int32_t) override { return true; }
    } silent;
    std::vector<std::vector<int32_t>> alone;
    for (const InferenceRequest& each : requests) {
      GenerateOptions options;
      options.max_new_tokens = each.max_new_tokens;
      options.kv_dtype = kv_dtype;
      options.sampling = each.sampling;
      alone.push_back(generate(decoder, context, DType::bf16, std::span(&each.prompt, 1), options, silent)[0]);
    }
    InferenceEngine::Options options{.capacity = kCapacity,
                                     .sequences = 2 + dice.below(4),
                                     .max_batch_tokens = 1 + dice.below(40),
                                     .kv_dtype = kv_dtype};
    if (dice.one_in(2)) options.speculation = {std::make_shared<LookupDrafter>(), 4};
    if (world.rank() != 0) return CachedDecoder(decoder, context, DType::bf16, options.cache(), &world).follow();
    InferenceEngine engine(decoder, context, DType::bf16, options, &world);
    std::vector<std::shared_ptr<Heard>> heard;
    std::vector<uint64_t> numbers;
    int64_t reused = 0, cancelled = 0;
    while (heard.size() < requests.size() || engine.counts().running + engine.counts().waiting > 0) {
      for (int64_t arrive = dice.below(3); arrive > 0 && heard.size() < requests.size(); --arrive) {
        heard.push_back(std::make_shared<Heard>());
        numbers.push_back(engine.submit(requests[heard.size() - 1], heard.back()));
      }
      if (!numbers.empty() && dice.one_in(20))
        engine.cancel(numbers[static_cast<size_t>(dice.below(std::ssize(numbers)))]);
      engine.step();
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      if (heard[i]->reason == FinishReason::cancelled) {
        ++cancelled;
        alone[i].resize(std::min(alone[i].size(), heard[i]->tokens.size()));
      }
      EXPECT_EQ(heard[i]->tokens, alone[i]) << "request " << i;
      reused += heard[i]->cached;
    }
    EXPECT_GT(reused, 0);
    EXPECT_LT(cancelled, std::ssize(requests) / 2);
    EXPECT_EQ(engine.counts().cached_tokens, 0) << "parts of the cache are free";
    engine.dismiss();
  });
}

NOUGHT_SIZE(medium);
TEST(RandomRequests, get_what_each_gets_alone) {
  int64_t turn = 0;
  for (const char* model : {"open/llama_gqa", "open/mistral"})
    for (const std::optional<DType> kv_dtype : {std::optional<DType>(), std::optional(DType::i8)})
      for (const Layout& layout : {Layout{"1 rank", 1, {}}, Layout{"tp 2", 2, {}}, Layout{"pp 2", 2, {.pipeline = 2}}})
        for (int part = 0; part < test::sweep(1, 5); ++part)
          if (const auto seed = static_cast<unsigned>(turn++); test::samples(seed, 2))
            run_requests(model, layout, kv_dtype, static_cast<size_t>(test::sweep(8, 40)), seed);
}

}  // namespace
}  // namespace nought::random_requests_test
