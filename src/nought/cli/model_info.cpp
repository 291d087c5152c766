#include "nought/cli/model_info.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_contents.h"
#include "nought/checkpoint/export_record.h"
#include "nought/checkpoint/receipt.h"
#include "nought/cli/tensor_info.h"
#include "nought/io/file_format.h"
#include "nought/text/tokenizer.h"
#include "nought/weights/gguf_weights.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr FileFormat kModelInfoFormat{"nought-model-info", 1};

OrderedJson best_json(const BestModel& best) {
  const Json json = best.json();
  return {{"step", json.at("step")}, {"metric", json.at("metric")}, {"value", json.at("value")}};
}

void add_checkpoint(const fs::path& path, OrderedJson& info) {
  const CheckpointContents contents = contents_of(path);
  const CheckpointInfo& saved = contents.info;
  info["format_of_checkpoint"] = contents.format;
  info["step"] = saved.step;
  info["skipped"] = saved.skipped;
  for (const char* key : {"max_steps", "epoch", "tokens", "optimizer", kReceiptKey})
    if (saved.about.is_object() && saved.about.contains(key)) info[key] = saved.about.at(key);
  // Earlier versions did not say how many tokens; they follow from what had to be the same for every step.
  if (!info.contains("tokens") && saved.run.is_object() && saved.run.contains("seq_length"))
    info["tokens"] =
        saved.step * saved.run.value("train_batch", int64_t{0}) * saved.run.value("seq_length", int64_t{0});
  info["parameters"] = contents.parameters;
  info["frozen"] = contents.frozen;
  info["states"] = contents.states;
  info["ranks"] = saved.world_size;
  info["zero_stage"] = saved.zero_stage;
  info["run"] = saved.run;
  if (saved.loss_scale.scale != 1) info["loss_scale"] = saved.loss_scale.scale;
  if (saved.best) info["best"] = best_json(*saved.best);
  info["files"] = contents.files;
  info["bytes"] = contents.bytes;
  info["written_by"] = saved.written_by;
  info["written_at"] = saved.written_at;
}

/// What kind of tensor a parameter is: "self_attn.q_proj" of every layer, and the experts of a layer together.
std::string kind_of(const std::string& parameter) {
  std::string kind;
  for (const std::string& part : split(parameter, '.')) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const bool outer = kind.empty() && (part == "model" || part == "layers" || part == "transformer" || part == "h" ||
                                        part == "gpt_neox");
    if (!number && !outer) kind += (kind.empty() ? "" : ".") + part;
  }
  return kind;
}

/// The types of a model that is stored in few bits: bits per weight, and how each kind of tensor is stored.
void add_storage(const ModelSource& source, OrderedJson& info) {
  int64_t bytes = 0, elements = 0;
  bool quantised = false;
  std::map<std::string, std::vector<std::string>> kinds;  // format -> kinds of tensors
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.role == ParameterRole::adapter) continue;
      const StoredWeights::Storage storage = source.stored()->storage_of(parameter);
      bytes += storage.bytes, elements += parameter.placement.global.numel();
      quantised = quantised || (storage.format != "f32" && storage.format != "f16" && storage.format != "bf16");
      std::vector<std::string>& of_format = kinds[storage.format];
      const std::string kind = kind_of(parameter.name);
      if (std::find(of_format.begin(), of_format.end(), kind) == of_format.end()) of_format.push_back(kind);
    }
  if (!quantised || elements == 0) return;
  info["bits_per_weight"] = 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
  for (const auto& [format, names] : kinds) info["types"][format] = names;
}

void add_weights(const fs::path& path, OrderedJson& info) {
  const ModelSource source(FoundModel{path});
  info["parameters"] = source.model().parameter_count();
  info["dtype"] = name_of(source.dtype());
  add_storage(source, info);
  info["files"] = source.stored()->num_files();
  info["bytes"] = source.stored()->file_bytes();
  if (!is_gguf_path(path) && WeightFiles(path).in_pieces()) add_foreign_run(path, info);
  const std::optional<ExportRecord> record = read_export_record(path);
  if (!record) return;
  info["step"] = record->step;
  if (record->best) info["best"] = best_json(*record->best);
  if (!record->receipt.empty()) info[kReceiptKey] = record->receipt;
  info["written_by"] = record->written_by;
  info["written_at"] = record->written_at;
}

/// What is known of an adapter besides what a checkpoint of it says.
void add_adapter(const FoundModel& found, OrderedJson& info) {
  const fs::path folder = found.adapters.front().folder;
  const ModelSource source(found);
  info["kind"] = "adapter";
  info["path"] = folder.string();
  info["base"] = found.folder.string();
  info["family"] = source.config().family;
  info["layers"] = describe_adapter(source.config().adapter);
  if (is_checkpoint(folder)) return add_checkpoint(folder, info);
  info["parameters"] = source.model().parameter_count() - source.model().frozen_count();
  info["files"] = 1;
  info["bytes"] = static_cast<int64_t>(fs::file_size(folder / kAdapterWeightsFile));
}

double number(const OrderedJson& info, const char* key) { return info.value(key, 0.0); }

std::string text_of(const OrderedJson& info, const char* key) { return info.value(key, std::string()); }

std::string list_of(const OrderedJson& info, const char* key) {
  std::vector<std::string> parts;
  for (const auto& each : info[key]) parts.push_back(each.is_string() ? each.get<std::string>() : each.dump());
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "60 of 600, epoch 0.31, 2 updates skipped".
std::string step_text(const OrderedJson& info) {
  std::string text = fmt::format("{}", number(info, "step"));
  if (info.contains("max_steps")) text += fmt::format(" of {}", number(info, "max_steps"));
  if (info.contains("epoch")) text += fmt::format(", epoch {:.2f}", number(info, "epoch"));
  if (number(info, "skipped") > 0) text += fmt::format(", {} updates skipped", number(info, "skipped"));
  return text;
}

std::string model_text(const OrderedJson& info) {
  const std::string all = format_count(number(info, "parameters")), frozen = format_count(number(info, "frozen"));
  return fmt::format("{}, {} parameters{}", text_of(info, "family"), all,
                     number(info, "frozen") > 0 ? fmt::format(", {} of them frozen", frozen) : "");
}

using AddLine = std::function<void(std::string_view, const std::string&)>;

/// What a checkpoint says of the run that saved it.
void add_run_lines(const OrderedJson& info, const AddLine& line) {
  const OrderedJson run = info["run"].is_object() ? info["run"] : OrderedJson::object();
  if (run.contains("dtype")) line("precision", fmt::format("fp32 masters, computed in {}", text_of(run, "dtype")));
  const std::string optimizer = text_of(info, "optimizer");
  line("optimizer", fmt::format("{}{}", optimizer.empty() ? "" : optimizer + ": ", list_of(info, "states")));
  line("layout", fmt::format("{} rank{}, ZeRO stage {}", number(info, "ranks"), number(info, "ranks") == 1 ? "" : "s",
                             number(info, "zero_stage")));
  if (run.contains("train_batch"))
    line("batch", fmt::format("{} sequences of {} tokens", number(run, "train_batch"), number(run, "seq_length")));
  if (info.contains("loss_scale")) line("loss scale", fmt::format("{:g}", number(info, "loss_scale")));
}

}  // namespace

OrderedJson model_info(const fs::path& path, const fs::path& base) {
  const FoundModel found = find_model(path, base);
  OrderedJson info{{"format", kModelInfoFormat.str()}, {"path", found.folder.string()}};
  if (!found.choice.empty()) info["choice"] = found.choice;
  if (!found.adapters.empty()) {
    add_adapter(found, info);
    info["tokenizer"] = holds_tokenizer(found.adapters.front().folder) ? "its own" : "that of its model";
    return info;
  }
  const bool checkpoint = is_checkpoint(found.folder);
  info["kind"] = checkpoint ? "checkpoint" : "weights";
  info["family"] = ModelConfig::from_folder(found.folder).family;
  checkpoint ? add_checkpoint(found.folder, info) : add_weights(found.folder, info);
  info["tokenizer"] = holds_tokenizer(found.folder) ? "its own" : "bytes";
  OrderedJson checkpoints = OrderedJson::array();
  for (const fs::path& each : list_checkpoints(path)) checkpoints.push_back(*checkpoint_step(each));
  if (!checkpoints.empty()) info["checkpoints"] = checkpoints;
  return info;
}

std::string model_info_text(const OrderedJson& info) {
  std::string text = fmt::format("{} {}\n", text_of(info, "kind"), text_of(info, "path"));
  const AddLine line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<13}{}\n", name, value);
  };
  if (info.contains("choice")) line("chosen", text_of(info, "choice"));
  if (info.contains("base")) line("of the model", text_of(info, "base"));
  if (info.contains("layers"))
    for (const auto& layer : info["layers"]) line("adds to", layer.get<std::string>());
  if (info.contains("step")) line("step", step_text(info));
  if (info.contains("tokens")) line("tokens seen", format_count(number(info, "tokens")));
  line("model", model_text(info));
  if (info.contains("dtype")) line("precision", text_of(info, "dtype"));
  if (info.contains("bits_per_weight"))
    line("stored in",
         fmt::format("{:.2f} bits per weight; generate and chat keep them on a CPU", number(info, "bits_per_weight")));
  if (info.contains("types"))
    for (const auto& [format, names] : info["types"].items())
      line("", fmt::format("{}: {}", format, fmt::join(names.get<std::vector<std::string>>(), ", ")));
  if (info.contains("states")) add_run_lines(info, line);
  for (const std::string& state : foreign_states_text(info)) line("optimizer", state);
  if (info.contains("best")) {
    const OrderedJson& best = info["best"];
    line("best",
         fmt::format("step {}: {} {:.4f}", number(best, "step"), text_of(best, "metric"), number(best, "value")));
  }
  line("tokenizer", text_of(info, "tokenizer"));
  line("files",
       fmt::format("{} with {}", number(info, "files"), format_bytes(static_cast<int64_t>(number(info, "bytes")))));
  const std::string program = text_of(info, "written_by");
  if (!text_of(info, "written_at").empty())
    line("written", text_of(info, "written_at") + (program.empty() ? "" : " by nought " + program));
  if (text_of(info, "written_at").empty() && info.contains("written_by") && !program.empty())
    line("written", "by " + program);
  if (const std::string receipt = text_of(info, kReceiptKey); !receipt.empty())
    line("receipt", "the line with the hash " + receipt + "; `nought verify` makes steps of it again");
  if (info.contains("format_of_checkpoint")) line("format", text_of(info, "format_of_checkpoint"));
  if (info.contains("checkpoints")) line("checkpoints", "of steps " + list_of(info, "checkpoints"));
  return text;
}

}  // namespace nought
