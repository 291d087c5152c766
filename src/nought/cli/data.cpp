// nought data: prepares text, and shows what a run reads as the model sees it.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/ranges.h>
#include <unistd.h>

#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/cli/commands.h"
#include "nought/cli/data_commands.h"
#include "nought/cli/launch_job.h"
#include "nought/config/run_config.h"
#include "nought/data/dataset.h"
#include "nought/train/run_data.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

struct ShowOptions {
  std::string run_file;
  std::vector<std::string> overrides;
  int64_t sample = 0;
  bool validation = false;
};

/// Neighbouring tokens of a sample that are trained, or are not.
struct Stretch {
  size_t begin = 0, end = 0;
  bool trained = false, begins_document = false;
};

/// A sample: its inputs and, behind them, its last target if that is trained.
struct ShownSample {
  std::vector<int32_t> ids = {};
  std::vector<bool> trained = {};
  std::vector<Stretch> stretches = {};
  int64_t targets = 0;
};

ShownSample read_sample(const TokenDataset& data, int64_t index) {
  const auto length = static_cast<size_t>(data.seq_length());
  ShownSample sample{.ids = std::vector<int32_t>(length), .trained = {false}};
  std::vector<int32_t> targets(length);
  data.sample(index, sample.ids, targets);
  for (const int32_t target : targets) sample.trained.push_back(target != kIgnoredTarget);
  if (sample.trained.back())
    sample.ids.push_back(targets.back());
  else
    sample.trained.pop_back();
  sample.targets = std::count(sample.trained.begin(), sample.trained.end(), true);
  const std::vector<int32_t> starts = data.document_starts(index);
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const bool begins = std::find(starts.begin(), starts.end(), static_cast<int32_t>(i)) != starts.end();
    if (i == 0 || begins || sample.trained[i] != sample.stretches.back().trained)
      sample.stretches.push_back({i, i, sample.trained[i], begins});
    sample.stretches.back().end = i + 1;
  }
  return sample;
}

std::string quoted_text(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

/// The sample's stretches: their text and tokens; with colours what is trained is green, and the rest dim.
void print_sample(const ShownSample& sample, const Tokenizer& tokenizer, bool colours, int width) {
  const auto paint = [&](const char* code, const std::string& text) {
    return colours ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  const std::span<const int32_t> ids(sample.ids);
  for (const Stretch& each : sample.stretches) {
    if (each.begins_document)
      fmt::print("{}\n", each.begin == 0 ? "document, or what the sample before left of it" : "the next document");
    const auto part = ids.subspan(each.begin, each.end - each.begin);
    const std::string place = fmt::format("{}-{}", each.begin, each.end - 1);
    fmt::print("  {:<8} {:<11} {}\n", each.trained ? "trained" : "read", place,
               paint(each.trained ? "32" : "2", quoted_text(tokenizer.decode(part))));
    fmt::print("{}\n", wrap(fmt::format("           tokens      {}", fmt::join(part, " ")), width, 23));
  }
}

int show_data(const ShowOptions& options) {
  const RunPlan plan = with_model_folder(resolve(load_run_config(options.run_file, options.overrides), 1));
  require_trainable(plan);
  const auto tokenizer = tokenizer_of(plan.data);
  const RunData data = open_data(plan, *tokenizer);
  require<ConfigError>(!options.validation || data.validation.has_value(),
                       "--validation: the run keeps no data aside: give data.validation_fraction or "
                       "data.validation_files");
  const TokenDataset& shown = options.validation ? *data.validation : data.training;
  require<ConfigError>(shown.num_samples() > 0,
                       "the data has {} tokens, less than one sample of {}: lower data.seq_length", shown.num_tokens(),
                       shown.seq_length());
  require<ConfigError>(0 <= options.sample && options.sample < shown.num_samples(), "--sample must be 0 to {}, got {}",
                       shown.num_samples() - 1, options.sample);
  const int width = stdout_columns();
  for (const std::string& note : data.notes) fmt::print("{}\n", wrap("note: " + note, width, 8));
  const ShownSample sample = read_sample(shown, options.sample);
  fmt::print(
      "{}\n",
      wrap(fmt::format("sample {} of {} ({}): {} tokens, {} of them trained; training draws samples in an "
                       "order of its own",
                       options.sample, shown.num_samples(), options.validation ? "to validate with" : "to train on",
                       shown.seq_length(), sample.targets),
           width, 4));
  print_sample(sample, *tokenizer, isatty(STDOUT_FILENO) != 0, width);
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Invocation& invocation) {
  CLI::App* data =
      add_command(app, "data", "Prepares text for training, and shows what a run reads",
                  {"nought data show run.json", "nought data clean crawl.jsonl -o clean --rules gopher,c4"});
  data->require_subcommand(1);
  add_data_clean(*data, invocation);
  add_data_dedup(*data, invocation);
  add_data_decontaminate(*data, invocation);
  add_data_stats(*data, invocation);
  CLI::App* command =
      add_command(*data, "show", "A sample as the model sees it: its tokens, their text, and what of them is trained",
                  {"nought data show run.json", "nought data show run.json --sample 7 --set data.seq_length=256"});
  const auto options = std::make_shared<ShowOptions>();
  command->add_option("RUN.json", options->run_file, "The run whose data is shown")->required();
  command->add_option("--sample", options->sample, "The sample's number, from 0")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--validation", options->validation, "One of the samples to validate with");
  add_override_option(*command, options->overrides, "data.seq_length=256");
  command->callback([&invocation, options] { invocation.action = [options] { return show_data(*options); }; });
}

}  // namespace nought
