#include "nought/weights/model_source.h"

#include <algorithm>
#include <cmath>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/export_record.h"
#include "nought/comm/first_rank.h"
#include "nought/io/files.h"
#include "nought/io/hub_cache.h"
#include "nought/models/names.h"
#include "nought/text/tokenizer.h"
#include "nought/weights/adapter_starts.h"
#include "nought/weights/gguf_weights.h"
#include "nought/weights/merged_weights.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// The weights of a checkpoint. What its optimizer kept belongs to the run that wrote it.
class CheckpointWeights final : public StateSource {
 public:
  /// base: see Checkpoint::take_base_from(); null unless it holds an adapter.
  CheckpointWeights(const fs::path& path, const Model& model, const StateSource* base = nullptr)
      : checkpoint_(path, model) {
    if (base != nullptr) checkpoint_.take_base_from(*base);
  }
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    if (kind == StateKind::master) {
      checkpoint_.fill(kind, parameter, elements, destination);
    } else {
      Stream here;
      zero(destination, here);
    }
  }
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return checkpoint_.four_bits(parameter);
  }

 private:
  Checkpoint checkpoint_;
};

RunPlan with_folder(RunPlan plan, const FoundModel& found) {
  require<ConfigError>(found.adapters.empty(),
                       "model is {}, which holds an adapter: write its model, {}, and \"adapter\": \"{}\" to train the "
                       "adapter on; nought convert --merge makes a model of both",
                       plan.model_dir, found.folder.string(), plan.model_dir);
  if (plan.data.tokenizer == plan.model_dir) plan.data.tokenizer = found.folder.string();
  plan.model_dir = found.folder.string();
  plan.model_choice = found.choice;
  plan.model_found = true;
  return plan;
}

/// Whether the model's positions bound sequences, of which nobody said how long they are.
bool has_automatic_length(const RunPlan& plan) {
  return plan.layout.seq_length == 0 || (plan.alignment.of_answers() && !plan.alignment.length_given);
}

/// Settles what the config.json of a model decides.
RunPlan with_facts_of_model(RunPlan plan) {
  const bool wants_buckets = !plan.model_dir.empty() && has_automatic_buckets(plan);
  if (plan.model_dir.empty() && plan.model_config.is_null()) return plan;
  if (!has_automatic_length(plan) && !wants_buckets) return plan;
  const ModelConfig config = plan.model_dir.empty() ? ModelConfig::from_json(plan.model_config, "model")
                                                    : ModelConfig::from_folder(plan.model_dir);
  if (wants_buckets) plan = with_automatic_buckets(std::move(plan), config.hidden_size);
  return with_length_of(std::move(plan), config);
}

/// A checkpoint whose config.json and tokenizer are as the run wrote them. IoError if they are not.
FoundModel of_checkpoint(const fs::path& path, std::string choice = {}) {
  check_other_files(path);
  return {path, std::move(choice)};
}

/// Exported weights beside checkpoints: the newer of the two. Where an earlier version wrote one of them, and noted no
/// time, the times of the files decide.
FoundModel newest_of(const fs::path& path, const fs::path& checkpoint) {
  const std::optional<ExportRecord> record = read_export_record(path);
  const std::string saved_at = read_checkpoint_info(checkpoint).written_at;
  std::error_code ignored;
  const bool exported_later = record && !saved_at.empty()
                                  ? record->written_at >= saved_at
                                  : fs::last_write_time(path / "config.json", ignored) >=
                                        fs::last_write_time(checkpoint / "manifest.json", ignored);
  const std::string weights = fmt::format("the weights that {} exported{}", path.string(),
                                          record ? fmt::format(" after step {}", record->step) : "");
  if (!exported_later) return of_checkpoint(checkpoint, fmt::format("{}, newer than {}", checkpoint.string(), weights));
  const std::string best =
      record && record->best ? fmt::format(": those of its best checkpoint, of step {}", record->best->step) : "";
  return {path, weights + best};
}

/// " (did you mean FOLDER/run?)": a model in a folder that is none; "" if there is none.
std::string model_within(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> models;
  for (const fs::directory_entry& each : entries_of(path, ignored))
    if (each.is_directory(ignored) &&
        (is_checkpoint(each.path()) || holds_weights(each.path()) || !list_checkpoints(each.path()).empty()))
      models.push_back(each.path());
  return models.empty() ? ""
                        : fmt::format(" (did you mean {}?)", std::min_element(models.begin(), models.end())->string());
}

/// The model that an adapter was trained on, with it. `path`: its folder, a checkpoint of it, or the output folder of
/// the run that trained it.
FoundModel of_adapter(const fs::path& path, const fs::path& named) {
  const std::vector<fs::path> checkpoints = is_checkpoint(path) ? std::vector<fs::path>{} : list_checkpoints(path);
  const FoundModel own = is_checkpoint(path)   ? of_checkpoint(path)
                         : checkpoints.empty() ? FoundModel{path}
                                               : newest_of(path, checkpoints.back());
  const fs::path base = named.empty() ? base_of_adapter(own.folder) : named;
  require<ConfigError>(!holds_adapter(base), "{}: {} {}, which holds an adapter, and no model", own.folder.string(),
                       named.empty() ? "was trained on" : "--base names", base.string());
  FoundModel found = find_model(base);
  if (!own.choice.empty()) found.choice = own.choice;
  found.adapters.push_back({own.folder});
  return found;
}

/// The model of a path that exists.
FoundModel found_in(const fs::path& given, const fs::path& path) {
  std::error_code ignored;
  const auto refuse = [&](std::string_view found) {
    fail<IoError>(
        "{}: expected a Hugging Face folder, a GGUF file, a checkpoint or the output folder of a run, found {}",
        given.string(), found);
  };
  if (!fs::exists(path, ignored) && is_hub_name(given.string()))
    refuse(fmt::format("nothing; the hub's cache {0} does not hold it either: \"hf download {1}\" gets it",
                       hub_cache().string(), given.string()));
  if (is_gguf_path(path) && fs::is_regular_file(path, ignored)) return {path};
  if (!fs::is_directory(path, ignored)) refuse(fs::exists(path, ignored) ? "a file" : "nothing");
  if (is_checkpoint(path)) return of_checkpoint(path);
  const std::vector<fs::path> checkpoints = list_checkpoints(path);
  if (holds_weights(path)) return checkpoints.empty() ? FoundModel{path} : newest_of(path, checkpoints.back());
  if (!checkpoints.empty())
    return of_checkpoint(checkpoints.back(), fmt::format("{}, the last checkpoint there", checkpoints.back().string()));
  if (!fs::is_regular_file(path / "config.json", ignored))
    refuse("a folder without config.json and checkpoints" + model_within(path));
  return {path};
}

}  // namespace

FoundModel find_model(const fs::path& given, const fs::path& base) {
  std::error_code ignored;
  const fs::path path = fs::exists(given, ignored) ? given : hub_snapshot(given.string()).value_or(given);
  const bool saved =
      fs::is_directory(path, ignored) && !holds_adapter(path) && !is_checkpoint(path) && !holds_weights(path);
  const std::vector<fs::path> checkpoints = saved ? list_checkpoints(path) : std::vector<fs::path>{};
  const fs::path last = checkpoints.empty() ? path : checkpoints.back();
  if (holds_adapter(last)) {
    FoundModel found = of_adapter(last, base);
    if (last != path) found.choice = fmt::format("{}, the last checkpoint there", last.string());
    return found;
  }
  FoundModel found = found_in(given, path);
  require<ConfigError>(base.empty(), "--base {}: {} is a model itself, and no adapter: leave it out", base.string(),
                       given.string());
  return found;
}

FoundModel find_model(const fs::path& path, Communicator& ranks, const Context& context, const fs::path& base) {
  FoundModel found;
  const auto look = [&] {
    found = find_model(path, base);
    Json adapters = Json::array();
    for (const AdapterUse& each : found.adapters) adapters.push_back(each.folder.string());
    return Json{{"folder", found.folder.string()}, {"adapters", adapters}}.dump();
  };
  const Json told = Json::parse(found_by_first(ranks, context, look));
  found.folder = told["folder"].get<std::string>();
  found.adapters.clear();
  for (const Json& each : told["adapters"]) found.adapters.push_back({each.get<std::string>()});
  return found;
}

RunPlan with_length_of(RunPlan plan, const ModelConfig& config) {
  if (!has_automatic_length(plan)) return plan;
  Layout& layout = plan.layout;
  const int64_t before = layout.seq_length;
  if (before != 0 && before <= config.max_positions) return plan;
  layout.seq_length = config.max_positions;
  if (before != 0) layout.row_tokens = layout.row_tokens / before * layout.seq_length;
  const int64_t most = plan.alignment.policy_loss.max_completion_length;
  require<ConfigError>(!plan.alignment.writes_answers() || most < layout.seq_length,
                       "{} {} leaves no token for a prompt: the model knows {} positions",
                       plan.alignment.answer_length_key(), most, layout.seq_length);
  const Resolved length{"data.seq_length", fmt::format("{}", layout.seq_length), kModelLength};
  const auto row = std::ranges::find(plan.resolved, length.key, &Resolved::key);
  if (row == plan.resolved.end())
    plan.resolved.push_back(length);
  else
    *row = length;
  return plan;
}

void require_positions(const RunPlan& plan, const Decoder& model) {
  try {
    model.require_positions(plan.layout.seq_length);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{} = {}: {}: lower it", plan.alignment.of_answers() ? "alignment.max_length" : "data.seq_length",
                      plan.layout.seq_length, error.what());
  }
}

RunPlan with_model_folder(RunPlan plan) {
  if (plan.model_found) return plan;
  return with_facts_of_model(plan.model_dir.empty() ? plan : with_folder(plan, find_model(plan.model_dir)));
}

RunPlan with_model_folder(RunPlan plan, Communicator& ranks, const Context& context) {
  if (plan.model_found) return plan;
  return with_facts_of_model(plan.model_dir.empty() ? plan
                                                    : with_folder(plan, find_model(plan.model_dir, ranks, context)));
}

namespace {

ModelConfig config_of(const FoundModel& found, AdaptersAre are, HeadIs head = HeadIs::read) {
  ModelConfig config = ModelConfig::from_folder(found.folder);
  if (head == HeadIs::left_out) config = config.without_head();
  config.require_loadable(found.folder.string());
  if (found.adapters.empty()) return config;
  ModelAdapter adapter = combined_adapter(found.adapters, config);
  return are == AdaptersAre::merged ? merged_config(std::move(config), adapter)
                                    : with_adapter(std::move(config), std::move(adapter));
}

/// The weights of a model whose head is its table, for one that has a head of its own as well.
class PartedHead final : public StateSource {
 public:
  PartedHead(std::unique_ptr<StateSource> weights, const Decoder& stored) : weights_(std::move(weights)) {
    const WeightNames names = WeightNames::of(stored.config());
    head_ = names.head + ".weight";
    for (const Parameter& parameter : stored.units().front()->parameters())
      if (parameter.name == names.token_embedding + ".weight") table_ = &parameter;
  }
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    weights_->fill(kind, table_ != nullptr && parameter.name == head_ ? *table_ : parameter, elements, destination);
  }
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return weights_->four_bits(parameter);
  }
  std::optional<StoredBlocks> blocks(const Parameter& parameter) const override {
    return weights_->blocks(table_ != nullptr && parameter.name == head_ ? *table_ : parameter);
  }

 private:
  std::unique_ptr<StateSource> weights_;
  std::string head_;
  const Parameter* table_ = nullptr;
};

/// Some elements of each parameter, which any training changes.
std::vector<float> some_values(const ModelSource& source, const Parameter& parameter, Memory& memory) {
  constexpr int64_t kSome = 256;
  const Tensor values = Tensor::empty(memory, {std::min(kSome, parameter.placement.global.numel())}, DType::f32,
                                      Category::workspace, memory.host_pool());
  source.weights().fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
  return values.to_vector<float>();
}

/// Whether two models have the same weights, up to the rounding of the narrower of their dtypes.
bool same_weights(const ModelSource& a, const ModelSource& b) {
  const auto memory = Memory::create();
  const auto& units = a.model().units();
  if (units.size() != b.model().units().size()) return false;
  const double tolerance = a.dtype() == b.dtype() ? 0 : 0x1p-8;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto &of_a = units[i]->parameters(), &of_b = b.model().units()[i]->parameters();
    if (of_a.size() != of_b.size()) return false;
    for (size_t j = 0; j < of_a.size(); ++j) {
      if (of_a[j].name != of_b[j].name || of_a[j].placement.global != of_b[j].placement.global) return false;
      const std::vector<float> x = some_values(a, of_a[j], *memory), y = some_values(b, of_b[j], *memory);
      for (size_t k = 0; k < x.size(); ++k)
        if (std::abs(double{x[k]} - double{y[k]}) > tolerance * std::abs(double{x[k]})) return false;
    }
  }
  return true;
}

std::unique_ptr<StoredWeights> stored_weights(const fs::path& path, const Decoder& model) {
  if (is_gguf_path(path)) return std::make_unique<GgufWeights>(path, model.config(), model);
  return std::make_unique<HfWeights>(path, model);
}

}  // namespace

void require_base(const fs::path& adapter, const fs::path& model) {
  const std::optional<fs::path> base = present_base_of_adapter(adapter);
  std::error_code ignored;
  if (!base || fs::equivalent(*base, model, ignored)) return;
  require<ConfigError>(same_weights(ModelSource(*base), ModelSource(FoundModel{model})),
                       "{}: was trained on {}, and the weights of {} are others: name that model; {} --base {} adds it "
                       "to this one all the same",
                       adapter.string(), base->string(), model.string(), adapter.string(), model.string());
}

ModelSource::ModelSource(FoundModel found, AdaptersAre are, HeadIs head)
    : folder_(found.folder), choice_(found.choice), adapters_(found.adapters), model_(config_of(found, are, head)) {
  const bool checkpoint = nought::is_checkpoint(folder_);
  ModelConfig own = ModelConfig::from_folder(folder_);
  // A checkpoint is read whole; files need not have the head that nobody asks for.
  if (head == HeadIs::left_out && !checkpoint) own = own.without_head();
  if (own.tie_word_embeddings != model_.config().tie_word_embeddings ||
      own.predicts_tokens != model_.config().predicts_tokens)
    stored_ = std::make_unique<Decoder>(own);
  const Decoder& stored = stored_ ? *stored_ : model_;
  if (checkpoint) {
    base_ = std::make_unique<CheckpointWeights>(folder_, stored);
  } else {
    auto weights = stored_weights(folder_, stored);
    files_ = weights.get();
    base_ = std::move(weights);
  }
  if (own.tie_word_embeddings) base_ = std::make_unique<PartedHead>(std::move(base_), stored);
  if (!adapters_.empty()) weights_ = with_adapters(are, head);
}

std::unique_ptr<StateSource> ModelSource::with_adapters(AdaptersAre are, HeadIs head) {
  const bool merged = are == AdaptersAre::merged;
  if (merged) adapted_ = std::make_unique<Decoder>(config_of({folder_, {}, adapters_}, AdaptersAre::beside, head));
  const Decoder& model = merged ? *adapted_ : model_;
  const auto in_checkpoint = [](const AdapterUse& each) { return nought::is_checkpoint(each.folder); };
  const bool saved = std::ranges::any_of(adapters_, in_checkpoint);
  require<ConfigError>(!saved || adapters_.size() == 1,
                       "{}: a checkpoint's adapter does not add up with others: nought convert writes it as a folder",
                       adapters_.front().folder.string());
  ModelConfig own = model.config();
  own.adapter = {};
  for (const AdapterUse& each : adapters_) {
    const ModelAdapter one = combined_adapter({{each.folder}}, own);
    if (!StartedBase::is_needed(one)) continue;
    // As peft reads it: what such an adapter adds to is the model without what it began with.
    require<ConfigError>(adapters_.size() == 1,
                         "{}: an adapter whose start was taken from the model (init_lora_weights) does not add up with "
                         "others: merge it first",
                         each.folder.string());
    started_ = std::make_unique<StartedBase>(own, one, *base_);
  }
  const StateSource& base = started_ ? *started_ : *base_;
  std::unique_ptr<StateSource> beside;
  if (saved) {
    beside = std::make_unique<CheckpointWeights>(adapters_.front().folder, model, &base);
  } else {
    beside = std::make_unique<AdapterWeights>(adapters_, model, own, base);
  }
  if (!merged) return beside;
  return std::make_unique<MergedWeights>(model, model.config(), std::move(beside));
}

std::string ModelSource::weights_hash() const {
  if (files_) return files_->content_hash();
  const std::string manifest = read_bytes(folder_ / kManifest);
  return xxh3_of(std::as_bytes(std::span(manifest)));
}

std::string ModelSource::tokenizer() const {
  for (const AdapterUse& each : adapters_)
    if (holds_tokenizer(each.folder)) return each.folder.string();
  return holds_tokenizer(folder_) ? folder_.string() : "bytes";
}

}  // namespace nought
