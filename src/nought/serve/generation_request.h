// GenerationRequest: a body of /v1/completions or /v1/chat/completions, checked and resolved.
#pragma once

#include <string_view>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/infer/inference_engine.h"
#include "nought/serve/answer.h"
#include "nought/serve/answer_constraint.h"
#include "nought/serve/served_model.h"

namespace nought {

struct GenerationRequest {
  AnswerOptions answer = {};  // all but id and created
  std::vector<std::vector<int32_t>> prompts = {};
  int64_t choices = 1;  // of each prompt
  AnswerConstraint constraint = {};
  InferenceRequest inference = {};  // all but the prompt and the constraint; of the choices, each has the next seed
};

/// ApiError for each field that is wrong or not supported. `seed`: what counts if the request has none.
GenerationRequest read_completion(std::string_view body, const ServedModel& model, uint64_t seed);
GenerationRequest read_chat_completion(std::string_view body, const ServedModel& model, uint64_t seed);

/// The prompts of a field: a string, a list of strings, a list of ids, or a list of lists of ids.
std::vector<std::vector<int32_t>> read_prompts(const OrderedJson& value, const ServedModel& model,
                                               const std::string& field = "prompt");
/// The adapter of that name, kNoAdapter for that of the model itself. ApiError names those that there are.
int32_t model_named(const std::string& name, const ServedModel& model);
/// What "model" names; where it says nothing, the model itself.
int32_t read_model(JsonFields& fields, const ServedModel& model);
/// The tokens of "messages", with what else their template reads of the request.
std::vector<int32_t> read_messages(const OrderedJson& body, const ServedModel& model);

}  // namespace nought
