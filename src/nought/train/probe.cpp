#include "nought/train/probe.h"

#include <algorithm>

#include "nought/infer/sampling.h"
#include "nought/io/safetensors.h"
#include "nought/train/trainer.h"
#include "nought/weights/adapter_files.h"

namespace nought {

Interval tokens_of(const ProbeInput& input, int64_t row) {
  const int64_t length = input.ids.dim(1);
  if (!input.mask) return {0, length};
  const int64_t *mask = input.mask.data<int64_t>() + row * length, *first = std::find(mask, mask + length, 1);
  return {first - mask, std::find(first, mask + length, 0) - mask};
}

namespace {

/// The share of a rank: the interval that it computes when there are so many examples.
Interval examples_of(int64_t examples, int rank, int ranks) {
  const int64_t each = ceil_div(examples, ranks);
  return {std::min(rank * each, examples), std::min((rank + 1) * each, examples)};
}

Interval rows_of(const ProbeInput& input, int rank, int ranks) { return examples_of(input.ids.dim(0), rank, ranks); }

/// The share of each micro-batch; the last may have fewer.
int64_t examples_per_micro_batch(int64_t examples, int ranks, int64_t most) {
  const int64_t own = examples_of(examples, 0, ranks).size();
  return ceil_div(own, std::clamp<int64_t>(most, 1, own));
}

Tensor read_integers(const Context& context, const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(entry.shape.rank() == 2 && entry.shape.numel() > 0 && !is_float(entry.dtype),
                   "{}: {} must be integers [batch, length], got {}{}", file.path().string(), name,
                   name_of(entry.dtype), entry.shape);
  Tensor values =
      Tensor::empty(*context.memory, entry.shape, DType::i64, Category::workspace, context.memory->host_pool());
  file.read(name, {0, entry.shape.numel()}, values);
  return values;
}

void check_range(const SafetensorsFile& file, const std::string& name, const Tensor& values, int64_t vocab_size,
                 bool may_be_ignored) {
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int64_t id = values.data<int64_t>()[i];
    require<IoError>((0 <= id && id < vocab_size) || (may_be_ignored && id == kIgnoredTarget),
                     "{}: {}[{}, {}] is {}, the model's vocabulary has {} tokens", file.path().string(), name,
                     i / values.dim(1), i % values.dim(1), id, vocab_size);
  }
}

void check_mask(const SafetensorsFile& file, const ProbeInput& input) {
  const int64_t length = input.ids.dim(1);
  const std::string name = file.path().string();
  require<IoError>(input.mask.shape() == input.ids.shape(), "{}: input_ids {} and attention_mask {} differ in shape",
                   name, input.ids.shape(), input.mask.shape());
  for (int64_t row = 0; row < input.ids.dim(0); ++row) {
    const int64_t* mask = input.mask.data<int64_t>() + row * length;
    require<IoError>(std::all_of(mask, mask + length, [](int64_t value) { return value == 0 || value == 1; }),
                     "{}: attention_mask must be 0 or 1, row {} is not", name, row);
    const Interval tokens = tokens_of(input, row);
    require<IoError>(!tokens.empty() && std::count(mask, mask + length, 1) == tokens.size(),
                     "{}: attention_mask of row {} must be 1 for one run of tokens, with padding left or right of it",
                     name, row);
  }
}

Tensor as_f32(const Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return tensor;
  Tensor converted = context.empty(tensor.shape(), DType::f32, Category::workspace);
  context.run(Cast{.x = tensor, .y = converted});
  return converted;
}

/// The logits of all rows on rank 0.
Tensor gather_logits(ShardedModel& model, Decoder& decoder, const ProbeInput& input) {
  const Context& context = model.context();
  Communicator& ranks = model.mesh().group(Group::samples);
  const int64_t batch = input.ids.dim(0), length = input.ids.dim(1), vocab = decoder.config().vocab_size;
  const Interval rows = rows_of(input, ranks.rank(), ranks.size());
  const Tensor mine = as_f32(context, decoder.logits(context, probe_rows(context, input, ranks.rank(), ranks.size())));
  // Every rank sends as many rows; those of short ranks are padded.
  Tensor padded =
      context.zeros({rows_of(input, 0, ranks.size()).size() * length, vocab}, DType::f32, Category::workspace);
  int64_t done = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Interval tokens = tokens_of(input, row);
    const int64_t begin = (row - rows.begin) * length + tokens.begin;
    context.copy(mine.slice(done, done + tokens.size()), padded.slice(begin, begin + tokens.size()));
    done += tokens.size();
  }
  Tensor all = context.empty({ranks.rank() == 0 ? ranks.size() * padded.numel() : 0}, DType::f32, Category::workspace);
  ranks.gather(padded, all, 0).wait();
  if (ranks.rank() != 0) return {};
  return context.on_host(all.flat(0, batch * length * vocab).reshape({batch, length, vocab}));
}

}  // namespace

ProbeInput read_probe_rows(const Context& context, const SafetensorsFile& file, int64_t vocab_size) {
  ProbeInput input;
  input.ids = read_integers(context, file, "input_ids");
  check_range(file, "input_ids", input.ids, vocab_size, false);
  if (file.find("attention_mask")) {
    input.mask = read_integers(context, file, "attention_mask");
    check_mask(file, input);
  }
  return input;
}

ProbeInput read_probe_input(const Context& context, const std::string& path, int64_t vocab_size) {
  const SafetensorsFile file(path);
  ProbeInput input = read_probe_rows(context, file, vocab_size);
  input.labels = file.find("labels") ? read_integers(context, file, "labels") : input.ids;
  require<IoError>(input.ids.shape() == input.labels.shape(), "{}: input_ids {} and labels {} differ in shape", path,
                   input.ids.shape(), input.labels.shape());
  check_range(file, "labels", input.labels, vocab_size, true);
  require<IoError>(count_targets(input) > 0, "{}: no label counts: all after the first of each row are {}", path,
                   kIgnoredTarget);
  return input;
}

int64_t count_targets(const ProbeInput& input) {
  int64_t count = 0;
  for (int64_t row = 0; row < input.ids.dim(0); ++row) {
    const Interval tokens = tokens_of(input, row);
    const int64_t* labels = input.labels.data<int64_t>() + row * input.ids.dim(1);
    count += std::count_if(labels + tokens.begin + 1, labels + tokens.end,
                           [](int64_t label) { return label != kIgnoredTarget; });
  }
  return count;
}

ShardedModel::Options probe_sharding(const RunPlan& plan, bool gradients) {
  ShardedModel::Options options = plan.layout.sharding_options();
  options.training = gradients;
  return options;
}

int64_t probe_micro_batches(const ProbeInput& input, int ranks, int64_t most) {
  return ceil_div(rows_of(input, 0, ranks).size(), examples_per_micro_batch(input.ids.dim(0), ranks, most));
}

namespace {

Batch batch_of(const Context& context, const ProbeInput& input, Interval rows) {
  const int64_t length = input.ids.dim(1);
  std::vector<int32_t> ids, targets, starts;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Interval tokens = tokens_of(input, row);
    const int64_t *id = input.ids.data<int64_t>() + row * length, *label = input.labels.data<int64_t>() + row * length;
    starts.push_back(static_cast<int32_t>(ids.size()));
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      ids.push_back(static_cast<int32_t>(id[t]));
      targets.push_back(t + 1 < tokens.end ? static_cast<int32_t>(label[t + 1]) : kIgnoredTarget);
    }
  }
  if (rows.empty()) {
    ids.assign(static_cast<size_t>(length), 0);
    targets.assign(ids.size(), kIgnoredTarget);
    starts = {0};
  }
  const auto count = static_cast<int64_t>(ids.size());
  const Shape shape = input.mask ? Shape{1, count} : Shape{count / length, length};
  Batch batch{Tensor::of<int32_t>(*context.memory, shape, ids), Tensor::of<int32_t>(*context.memory, shape, targets)};
  batch.placeholder = rows.empty();
  if (input.mask) batch.document_starts.push_back(std::move(starts));
  return batch;
}

}  // namespace

std::vector<Batch> probe_batches(int64_t examples, const Communicator& ranks, int64_t micro_batches,
                                 const std::function<Batch(Interval examples)>& batch_of) {
  const Interval own = examples_of(examples, ranks.rank(), ranks.size());
  const int64_t each = examples_per_micro_batch(examples, ranks.size(), micro_batches);
  const int64_t count = ceil_div(examples_of(examples, 0, ranks.size()).size(), each);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < count; ++i)
    batches.push_back(
        batch_of({std::min(own.begin + i * each, own.end), std::min(own.begin + (i + 1) * each, own.end)}));
  return batches;
}

Batch probe_rows(const Context& context, const ProbeInput& input, int rank, int ranks) {
  return batch_of(context, input, rows_of(input, rank, ranks));
}

Tensor label_log_probabilities(const Context& context, const ProbeInput& input, const Tensor& logits) {
  const int64_t length = input.ids.dim(1), vocab = logits.dim(2);
  std::vector<float> values(static_cast<size_t>(input.ids.numel()));
  for (int64_t row = 0; row < input.ids.dim(0); ++row) {
    const Interval tokens = tokens_of(input, row);
    for (int64_t t = tokens.begin; t + 1 < tokens.end; ++t) {
      const int64_t at = row * length + t, label = input.labels.data<int64_t>()[at + 1];
      if (label == kIgnoredTarget) continue;
      const std::span<const float> all(logits.data<float>() + at * vocab, static_cast<size_t>(vocab));
      values[static_cast<size_t>(at)] = log_probability(all, label);
    }
  }
  return Tensor::of<float>(*context.memory, input.ids.shape(), values);
}

ProbeOutput take_gradients(ShardedModel& model, const Decoder& decoder) {
  const Context& context = model.context();
  const bool first = model.mesh().world().rank() == 0;
  const ModelAdapter& adapter = decoder.config().adapter;  // with one, what is trained is as its file has it
  ProbeOutput output;
  for (size_t i = 0; i < model.model().units().size(); ++i)
    model.with_gradients(i, [&](const Parameter& parameter, const Tensor& gradient) {
      if (!first || !gradient) return;
      const Tensor values = context.on_host(as_f32(context, gradient));
      if (adapter.empty()) return void(output.emplace_back("grad." + parameter.name, values));
      output.emplace_back("grad." + adapter_tensor_name(parameter, adapter),
                          as_in_file(parameter, values, *context.memory));
    });
  model.discard_gradients();
  return output;
}

ProbePass probe_pass(Engine& engine, ShardedModel& model, const Decoder& decoder, std::span<const Batch> batches,
                     double weight, bool gradients) {
  if (!gradients) return {.loss = engine.evaluate(batches, weight)};
  const double loss = engine.accumulate(batches, weight).loss;
  return {loss, take_gradients(model, decoder)};
}

void add_numbers(const Context& context, const std::string& name, const Shape& shape, std::span<const double> values,
                 ProbeOutput& output) {
  const std::vector<float> narrow(values.begin(), values.end());
  output.emplace_back(name, Tensor::of<float>(*context.memory, shape, narrow));
}

ProbeOutput probe(ShardedModel& model, Decoder& decoder, const ProbeInput& input, bool gradients,
                  const ProbeSteps& steps) {
  const Context& context = model.context();
  const Communicator& ranks = model.mesh().group(Group::samples);
  const bool first = model.mesh().world().rank() == 0;
  std::vector<Batch> batches = probe_batches(input.ids.dim(0), ranks, steps.micro_batches,
                                             [&](Interval rows) { return batch_of(context, input, rows); });
  if (steps.prepare) steps.prepare(batches);
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  auto [loss, output] =
      probe_pass(engine, model, decoder, batches, static_cast<double>(count_targets(input)), gradients);
  const Tensor logits = gather_logits(model, decoder, input);
  if (!first) return {};
  output.emplace_back("logits", logits);
  add_numbers(context, "loss", {}, std::span(&loss, 1), output);
  return output;
}

}  // namespace nought
