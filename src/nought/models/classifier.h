// The head of transformers' XForSequenceClassification in a config.json: reading, writing, and giving one to a model.
#pragma once

#include <optional>
#include <string>

#include "nought/base/json_fwd.h"
#include "nought/models/config.h"

namespace nought {

/// The first class of a config.json's `architectures`; "" if it names none.
std::string architecture_of(const Json& json);
/// Fills in config.classifier if the architecture is a sequence classifier. `source` names the file in a ConfigError.
void read_classifier(const Json& json, const std::string& source, ModelConfig& config);
/// The keys of a classifier, over those of the language model that `json` has.
void write_classifier(const ModelConfig& config, const std::string& architecture, OrderedJson& json);

/// The model with a head that scores sequences. A classifier keeps its own; ConfigError unless that has as many labels.
/// pad_token_id: given to one that has none.
ModelConfig with_classifier(ModelConfig config, int64_t labels, std::optional<ProblemType> problem,
                            std::optional<int64_t> pad_token_id, const std::string& source);

}  // namespace nought
