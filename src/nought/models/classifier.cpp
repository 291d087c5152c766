#include "nought/models/classifier.h"

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/models/config_families.h"
#include "nought/models/config_reader.h"

namespace nought {

namespace {

constexpr const char* kTask = "ForSequenceClassification";
constexpr int64_t kMostLabels = int64_t{1} << 24;
constexpr int64_t kDefaultLabels = 2;  // where config.json names none

/// LlamaForCausalLM: LlamaForSequenceClassification.
std::string classifier_architecture(const std::string& family, const std::string& architecture) {
  if (family == "gemma3_text") return std::string("Gemma3Text") + kTask;  // Gemma3For... is the multimodal one
  for (const char* end : {"ForCausalLM", "LMHeadModel", "Model"})
    if (architecture.ends_with(end))
      return architecture.substr(0, architecture.size() - std::string(end).size()) + kTask;
  return architecture + kTask;
}

/// Scores are of the normalised state alone, and routers are not balanced beside.
void leave_head(ModelConfig& config) {
  config.classifier->tied = config.tie_word_embeddings;
  config.tie_word_embeddings = config.head_bias = false;
  if (config.experts) config.experts->auxiliary_loss = false;
}

}  // namespace

std::string architecture_of(const Json& json) {
  const Json names = json.value("architectures", Json());
  return names.is_array() && !names.empty() && names.front().is_string() ? names.front().get<std::string>() : "";
}

void read_classifier(const Json& json, const std::string& source, ModelConfig& config) {
  if (!architecture_of(json).ends_with(kTask)) return;
  ConfigReader reader(json, source);
  ClassifierConfig& classifier = config.classifier.emplace();
  classifier.labels = reader.size("num_labels", kDefaultLabels, kMostLabels);
  if (const Json* names = reader.value("id2label")) {
    require<ConfigError>(names->is_object() && !names->empty(), "{}: id2label must name each label", source);
    classifier.labels = std::ssize(*names), classifier.names = names->dump();
  }
  if (const std::optional<std::string> problem = reader.text("problem_type")) {
    classifier.problem = enum_named<ProblemType>(*problem);
    require<ConfigError>(classifier.problem.has_value(),
                         "{}: problem_type \"{}\" is none of single_label_classification, regression, "
                         "multi_label_classification",
                         source, one_line(*problem));
  }
  classifier.pad_token_id = reader.integer("pad_token_id");
  if (!config.causal) read_encoder_classifier(reader, config.family, classifier);
  leave_head(config);
}

void write_classifier(const ModelConfig& config, const std::string& architecture, OrderedJson& json) {
  const ClassifierConfig& classifier = *config.classifier;
  json["architectures"] = OrderedJson::array({classifier_architecture(config.family, architecture)});
  json["tie_word_embeddings"] = classifier.tied;
  OrderedJson names = OrderedJson::object(), ids = OrderedJson::object();
  if (classifier.names.empty()) {
    for (int64_t i = 0; i < classifier.labels; ++i) names[std::to_string(i)] = fmt::format("LABEL_{}", i);
  } else {
    names = OrderedJson::parse(classifier.names);
  }
  for (const auto& [id, name] : names.items())
    ids[name.is_string() ? name.get<std::string>() : name.dump()] = std::stoll(id);
  json["id2label"] = names, json["label2id"] = ids;
  if (classifier.problem) json["problem_type"] = enum_name(*classifier.problem);
  if (classifier.pad_token_id) json["pad_token_id"] = *classifier.pad_token_id;
  if (!config.causal) write_encoder_classifier(config, json);
}

ModelConfig with_classifier(ModelConfig config, int64_t labels, std::optional<ProblemType> problem,
                            std::optional<int64_t> pad_token_id, const std::string& source) {
  if (config.classifier) {
    require<ConfigError>(labels == 0 || config.classifier->labels == labels,
                         "{} is a classifier of {} labels, and {} are asked for: leave the number out, or begin with a "
                         "language model",
                         source, config.classifier->labels, labels);
  } else {
    require<ConfigError>(labels > 0, "{} is {}, whose new head needs alignment.num_labels", source,
                         config.causal ? "a language model" : "an encoder");
    config.classifier = config.causal ? ClassifierConfig{} : encoder_classifier(config.family);
    config.classifier->labels = labels;
    leave_head(config);
  }
  if (problem) config.classifier->problem = problem;
  if (!config.classifier->pad_token_id) config.classifier->pad_token_id = pad_token_id;
  return config;
}

ModelConfig ModelConfig::without_head() const {
  ModelConfig config = *this;
  config.classifier.reset();
  config.predicts_tokens = config.tie_word_embeddings = config.head_bias = false;
  if (config.experts) config.experts->auxiliary_loss = false;
  return config;
}

void ModelConfig::require_head(const std::string& source) const {
  require<ConfigError>(
      predicts_tokens || classifier,
      "{} is an encoder ({}), which predicts no next token: \"nought embed\" makes vectors of texts with "
      "it, and \"nought train\" with alignment.method = \"classify\" trains a head on it",
      source, family);
}

void ModelConfig::require_language_model(const std::string& source) const {
  require_head(source);
  require<ConfigError>(!classifier,
                       "{} scores texts ({} labels) and predicts no tokens: \"nought score\" reads it, and \"nought "
                       "train\" with alignment.method = \"classify\" or \"reward\" trains it",
                       source, classifier ? classifier->labels : 0);
}

}  // namespace nought
