// What models have to be that lie beside the one which is trained: they score or value its answers, or teach it.
#pragma once

#include <string>
#include <utility>

#include "nought/base/error.h"
#include "nought/config/run_plan.h"
#include "nought/models/config.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// Calls check(); its ConfigError gets what the model is for, and its folder.
template <class Check>
void naming_model(const std::string& purpose, const std::string& folder, Check&& check) {
  try {
    std::forward<Check>(check)();
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}: {}", purpose, folder, error.what());
  }
}

/// ConfigError unless the run's ranks can share the model.
void require_shareable(const RunPlan& plan, const ModelConfig& config);
/// ConfigError unless it reads the tokens of a model with this vocabulary.
void require_same_vocabulary(const ModelConfig& config, int64_t vocab_size);
/// ConfigError unless the model of the folder reads the tokens that this tokenizer gives, as many as sequences of the
/// run have.
void require_reads(const RunPlan& plan, const ModelConfig& config, const std::string& folder,
                   const Tokenizer& tokenizer);

}  // namespace nought
