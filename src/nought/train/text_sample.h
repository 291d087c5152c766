// Text during training: what the model makes of a prompt between two steps.
#pragma once

#include <string>

#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// ConfigError unless the prompt has a token and fits the positions of a model that has learned them.
void check_sample(const SamplePlan& plan, const Tokenizer& tokenizer, const ModelConfig& config);

/// The continuation of the prompt by the likeliest tokens, up to the token that ends a document. All ranks call it
/// together and get the same text. Every one makes as many forward passes, whatever is generated. It changes nothing
/// that training depends on.
std::string continue_prompt(ShardedModel& model, Decoder& decoder, const Tokenizer& tokenizer, const SamplePlan& plan);

/// How many tokens the prompt has.
int64_t prompt_tokens(const SamplePlan& plan, const Tokenizer& tokenizer);

/// Runs the forward passes of continue_prompt() that need the most memory: of the prompt, where all keys rotate anew,
/// and at the end.
void dry_run_sample(ShardedModel& model, Decoder& decoder, int64_t prompt_tokens, int64_t max_new_tokens);

}  // namespace nought
