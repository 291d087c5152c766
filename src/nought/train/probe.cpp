#include "nought/train/probe.h"

#include <algorithm>

#include "nought/models/names.h"
#include "nought/models/safetensors.h"

namespace nought {

namespace {

constexpr int32_t kIgnore = -100;

int64_t rows_per_rank(int64_t batch, int ranks) { return ceil_div(batch, ranks); }

Tensor read_integers(const Context& context, const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(entry.shape.rank() == 2 && entry.shape.numel() > 0 && !is_float(entry.dtype),
                   "{}: {} must be integers [batch, length], got {}{}", file.path().string(), name,
                   name_of(entry.dtype), entry.shape.str());
  Tensor values = context.empty(entry.shape, DType::i64, Category::workspace);
  file.read(name, {0, entry.shape.numel()}, values);
  return values;
}

void check_range(const SafetensorsFile& file, const std::string& name, const Tensor& values, int64_t vocab_size,
                 bool may_be_ignored) {
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int64_t id = values.data<int64_t>()[i];
    require<IoError>((0 <= id && id < vocab_size) || (may_be_ignored && id == kIgnore),
                     "{}: {}[{}, {}] is {}, the model's vocabulary has {} tokens", file.path().string(), name,
                     i / values.dim(1), i % values.dim(1), id, vocab_size);
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
  Communicator& ranks = model.ranks();
  const int64_t batch = input.ids.dim(0), length = input.ids.dim(1), vocab = decoder.config().vocab_size;
  const int64_t rows = rows_per_rank(batch, ranks.size());
  const Tensor mine =
      as_f32(context, decoder.logits(context, probe_rows(context, input, ranks.rank(), ranks.size()).input_ids));
  // Every rank sends as many rows; those of short ranks are padded.
  Tensor padded = context.zeros({rows * length * vocab}, DType::f32, Category::workspace);
  copy(mine.flat(0, mine.numel()), padded.flat(0, mine.numel()));
  Tensor all = context.empty({ranks.rank() == 0 ? ranks.size() * padded.numel() : 0}, DType::f32, Category::workspace);
  ranks.gather(padded, all, 0).wait();
  if (ranks.rank() != 0) return {};
  return all.flat(0, batch * length * vocab).reshape({batch, length, vocab});
}

}  // namespace

ProbeInput read_probe_input(const Context& context, const std::string& path, int64_t vocab_size) {
  const SafetensorsFile file(path);
  ProbeInput input;
  input.ids = read_integers(context, file, "input_ids");
  input.labels = file.find("labels") ? read_integers(context, file, "labels") : input.ids;
  require<IoError>(input.ids.shape() == input.labels.shape(), "{}: input_ids {} and labels {} differ in shape", path,
                   input.ids.shape().str(), input.labels.shape().str());
  check_range(file, "input_ids", input.ids, vocab_size, false);
  check_range(file, "labels", input.labels, vocab_size, true);
  require<IoError>(count_targets(input) > 0, "{}: no label counts: all after the first column are {}", path, kIgnore);
  return input;
}

int64_t count_targets(const ProbeInput& input) {
  int64_t count = 0;
  for (int64_t i = 0; i < input.labels.numel(); ++i)
    count += i % input.labels.dim(1) != 0 && input.labels.data<int64_t>()[i] != kIgnore;
  return count;
}

Batch probe_rows(const Context& context, const ProbeInput& input, int rank, int ranks) {
  const int64_t batch = input.ids.dim(0), length = input.ids.dim(1), rows = rows_per_rank(batch, ranks);
  const int64_t begin = std::min(rank * rows, batch), end = std::min(begin + rows, batch);
  const int64_t count = std::max<int64_t>(end - begin, 1);
  Batch micro{context.zeros({count, length}, DType::i32), context.zeros({count, length}, DType::i32)};
  int32_t *ids = micro.input_ids.data<int32_t>(), *targets = micro.targets.data<int32_t>();
  std::fill_n(targets, count * length, kIgnore);
  for (int64_t i = 0; i < (end - begin) * length; ++i) {
    ids[i] = static_cast<int32_t>(input.ids.data<int64_t>()[begin * length + i]);
    if (i % length + 1 < length)
      targets[i] = static_cast<int32_t>(input.labels.data<int64_t>()[begin * length + i + 1]);
  }
  return micro;
}

ProbeOutput probe(ShardedModel& model, Decoder& decoder, const ProbeInput& input, bool gradients) {
  const Context& context = model.context();
  const bool first = model.ranks().rank() == 0;
  const Batch rows = probe_rows(context, input, model.ranks().rank(), model.ranks().size());
  const int64_t targets = count_targets(input);
  Engine engine(model);
  const double loss =
      gradients ? engine.accumulate(std::span(&rows, 1), targets).loss : engine.evaluate(std::span(&rows, 1), targets);
  ProbeOutput output;
  if (gradients) {
    const auto& units = model.model().units();
    for (size_t i = 0; i < units.size(); ++i) {
      const Tensor flat = model.gather_gradients(i);
      for (const Parameter& parameter : units[i]->parameters())
        if (first && !is_untrained_name(parameter.name))
          output.emplace_back(
              "grad." + parameter.name,
              as_f32(context, flat.flat(parameter.range.begin, parameter.range.end).reshape(parameter.shape)));
    }
    model.discard_gradients();
  }
  const Tensor logits = gather_logits(model, decoder, input);
  if (!first) return {};
  const float loss32 = static_cast<float>(loss);
  output.emplace_back("logits", logits);
  output.emplace_back("loss", Tensor::of<float>(*context.memory, {}, std::span(&loss32, 1)));
  return output;
}

}  // namespace nought
