#include "nought/cli/speculation.h"

#include <algorithm>

#include "nought/comm/communicator.h"
#include "nought/infer/model_drafter.h"

namespace nought {

namespace {

GenerationOptions options_of_draft(const GenerationOptions& of_model) {
  GenerationOptions options;
  options.model_dir = of_model.speculation.drafter;
  if (of_model.activations != Activations::int8) options.activations = of_model.activations;  // it may have no codes
  return options;
}

/// A model that guesses, with all that it needs.
class LoadedDrafter final : public Drafter {
 public:
  LoadedDrafter(const GenerationOptions& options, const LoadedModel& model, const CacheOptions& cache)
      : self_(make_self_communicator()), draft_(options_of_draft(options), *self_, model.context()) {
    const std::string& folder = options.speculation.drafter;
    const ModelConfig &guesses = draft_.decoder().config(), &draws = model.config();
    require<ConfigError>(
        guesses.vocab_size == draws.vocab_size,
        "--speculative {}: its vocabulary has {} tokens, that of the model {}: they must have the same", folder,
        guesses.vocab_size, draws.vocab_size);
    require<ConfigError>(draft_.tokenizer().fingerprint() == model.tokenizer().fingerprint(),
                         "--speculative {}: its tokenizer is another than that of the model: they must have the same",
                         folder);
    CacheOptions own = cache;
    own.capacity = std::min(cache.capacity, guesses.most_cached());
    drafter_ = std::make_unique<ModelDrafter>(draft_.decoder(), draft_.context(), draft_.dtype(), own);
  }
  std::vector<std::vector<int32_t>> guess(std::span<const DraftRequest> requests) override {
    return drafter_->guess(requests);
  }

 private:
  std::unique_ptr<Communicator> self_;
  LoadedModel draft_;
  std::unique_ptr<ModelDrafter> drafter_;
};

}  // namespace

Speculation make_speculation(const GenerationOptions& options, const LoadedModel& model, const CacheOptions& cache) {
  const SpeculationFlags& flags = options.speculation;
  flags.check();
  if (flags.drafter.empty()) return {};
  if (flags.drafter == "lookup") return {.drafter = std::make_shared<LookupDrafter>(), .tokens = flags.tokens};
  return {.drafter = std::make_shared<LoadedDrafter>(options, model, cache), .tokens = flags.tokens};
}

}  // namespace nought
