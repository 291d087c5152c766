// What each family reads from a config.json and writes to one. Only this file and names.h know families.
#pragma once

#include <span>

#include "nought/base/json.h"
#include "nought/models/config.h"
#include "nought/models/config_reader.h"

namespace nought {

struct Family {
  const char* name;          // model_type
  const char* architecture;  // the class in transformers
  void (*read)(ConfigReader&, ModelConfig&);
  /// Adds the keys that describe the model, except those that are the same for all families.
  void (*write)(const ModelConfig&, OrderedJson&);
};

/// Dense families that are llama with options.
std::span<const Family> llama_families();
/// Families with layers that keep a state.
std::span<const Family> state_families();
/// The other dense families.
std::span<const Family> other_families();
/// Families with mixtures of experts, and those of them that have more beside.
std::span<const Family> expert_families();
std::span<const Family> deep_families();
/// All of them, in alphabetical order.
const std::vector<Family>& all_families();
/// Families whose tokens see later ones, in alphabetical order.
std::span<const Family> encoder_families();
/// What the head of an encoder that scores texts is made of, as its family has it.
ClassifierConfig encoder_classifier(const std::string& family);
/// Fills in what the keys of a config.json say of it.
void read_encoder_classifier(ConfigReader& reader, const std::string& family, ClassifierConfig& classifier);
/// Adds these keys.
void write_encoder_classifier(const ModelConfig& config, OrderedJson& json);
/// The names of all families, decoders first.
std::vector<std::string> known_families();
/// The family of this name, decoder or encoder, or of which it is another name. If there is none, ConfigError names the
/// nearest one. `source` names the file.
const Family& family_named(const std::string& source, const std::string& name);

}  // namespace nought
