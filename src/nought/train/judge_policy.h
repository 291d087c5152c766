// judge_policy(): how good the answers are that a model writes to prompts which are held out.
#pragma once

#include <span>

#include "nought/config/run_plan.h"
#include "nought/data/sampler.h"
#include "nought/engine/engine.h"
#include "nought/engine/evaluation.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/train/policy_answers.h"
#include "nought/train/run_data.h"

namespace nought {

/// How the answers of a validation are written and cut into batches. layout: of the run's steps.
PolicyAnswers::Options validation_options(const RunPlan& plan, const AnswerData& held_out, const BatchLayout& layout);

/// Writes answers to the run's prompts of validation and judges them. The loss is 0: nothing says what is learned of
/// answers. ConfigError if nothing judges them. Collective.
Evaluation judge_policy(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model,
                        Decoder& decoder, Engine& engine, const Tokenizer& tokenizer);

}  // namespace nought
