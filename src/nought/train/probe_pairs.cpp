#include "nought/train/probe_pairs.h"

#include <algorithm>

#include "nought/data/answer_batch.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors.h"

namespace nought {

namespace {

Tensor integers(const Context& context, const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(entry.shape.rank() == 2 && entry.shape.numel() > 0 && entry.dtype == DType::i64,
                   "{}: {} must be I64 [rows, length], got {}{}", file.path().string(), name, name_of(entry.dtype),
                   entry.shape);
  Tensor values =
      Tensor::empty(*context.memory, entry.shape, DType::i64, Category::workspace, context.memory->host_pool());
  file.read(name, {0, entry.shape.numel()}, values);
  return values;
}

/// The tokens of the chosen answers that have the likelihood's weight.
int64_t likelihood_tokens_of(const PairInput& input, bool of_prompts) {
  int64_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(input.pairs()); ++i)
    count += likelihood_tokens({.ids = input.ids[i], .begin = input.begins[i]}, of_prompts);
  return count;
}

}  // namespace

namespace {

/// Appends the rows of the tensors whose names begin so.
void read_rows(const Context& context, const SafetensorsFile& file, const std::string& prefix, int64_t vocab_size,
               PairInput& input) {
  const std::string path = file.path().string();
  const Tensor ids = integers(context, file, prefix + "input_ids"),
               answers = integers(context, file, prefix + "completion_mask");
  const Tensor mask =
      file.find(prefix + "attention_mask") ? integers(context, file, prefix + "attention_mask") : Tensor();
  require<IoError>(ids.shape() == answers.shape() && (!mask || mask.shape() == ids.shape()),
                   "{}: input_ids, attention_mask and completion_mask differ in shape", path);
  const int64_t rows = ids.dim(0), length = ids.dim(1);
  for (int64_t row = 0; row < rows; ++row) {
    const auto of = [&](const Tensor& all) { return std::span(all.data<int64_t>() + row * length, length); };
    const int64_t size = mask ? std::count(of(mask).begin(), of(mask).end(), 1) : length;
    const auto answer = of(answers).first(static_cast<size_t>(size));
    const int64_t begin = std::find(answer.begin(), answer.end(), 1) - answer.begin();
    require<IoError>(std::count(answer.begin(), answer.end(), 1) == size - begin && begin < size,
                     "{}: row {} must be a prompt, an answer up to its last token, and padding", path, row);
    std::vector<int32_t>& own = input.ids.emplace_back();
    for (const int64_t id : of(ids).first(static_cast<size_t>(size))) {
      require<IoError>(0 <= id && id < vocab_size, "{}: row {} has the id {}, the model's vocabulary has {} tokens",
                       path, row, id, vocab_size);
      own.push_back(static_cast<int32_t>(id));
    }
    input.begins.push_back(begin);
  }
}

}  // namespace

PairInput read_answer_rows(const Context& context, const SafetensorsFile& file, int64_t vocab_size) {
  PairInput input;
  read_rows(context, file, "", vocab_size, input);
  return input;
}

std::vector<float> numbers_of(const Context& context, const SafetensorsFile& file, const std::string& name,
                              const Shape& shape) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(entry.dtype == DType::f32 && entry.shape == shape, "{}: {} must be F32 {}, got {}{}",
                   file.path().string(), name, shape, name_of(entry.dtype), entry.shape);
  return file.load(name, *context.memory).to_vector<float>();
}

std::vector<std::vector<float>> numbers_by_token(const Context& context, const SafetensorsFile& file,
                                                 const std::string& name, const PairInput& rows) {
  std::vector<std::vector<float>> each;
  if (file.find(name) == nullptr) return each;
  const int64_t length = file.at("input_ids").shape[1];
  const std::vector<float> all = numbers_of(context, file, name, {std::ssize(rows.ids), length});
  for (size_t row = 0; row < rows.ids.size(); ++row) {  // prompts and answers begin their rows
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row) * length;
    each.emplace_back(begin, begin + std::ssize(rows.ids[row]));
  }
  return each;
}

PairInput read_pair_input(const Context& context, const std::string& path, int64_t vocab_size, bool labels) {
  const SafetensorsFile file(path);
  PairInput input = read_answer_rows(context, file, vocab_size);
  if (!labels) {
    require<IoError>(input.ids.size() % 2 == 0,
                     "{}: {} rows are no pairs: the chosen answers, then as many rejected ones", path,
                     input.ids.size());
    return input;
  }
  const TensorEntry& label = file.at("label");
  require<IoError>(label.dtype == DType::i64 && label.shape == Shape{std::ssize(input.ids)},
                   "{}: label must be I64 [{}], got {}{}", path, input.ids.size(), name_of(label.dtype), label.shape);
  const Tensor values = file.load("label", *context.memory);
  for (const int64_t each : std::span(values.data<int64_t>(), input.ids.size()))
    input.labels.push_back(each != 0 ? AnswerLabel::desirable : AnswerLabel::undesirable);
  read_rows(context, file, "KL_", vocab_size, input);
  require<IoError>(input.ids.size() == 2 * input.labels.size(), "{}: KL_input_ids has {} rows, and input_ids {}", path,
                   input.ids.size() - input.labels.size(), input.labels.size());
  return input;
}

std::vector<Batch> pair_batches(Memory& memory, const PairInput& input, const AlignmentPlan& plan,
                                std::span<const double> reference, const Communicator& ranks, int64_t micro_batches) {
  const int64_t pairs = input.pairs();
  AnswerBatchOptions options{.ld_alpha = plan.ld_alpha, .likelihood_of_prompts = plan.likelihood_of_prompts};
  if (plan.likelihood != 0)
    options.likelihood = plan.likelihood * static_cast<double>(pairs) /
                         static_cast<double>(likelihood_tokens_of(input, plan.likelihood_of_prompts));
  return probe_batches(pairs, ranks, micro_batches, [&](Interval own) {
    std::vector<JudgedAnswer> answers;
    for (int64_t pair = own.begin; pair < own.end; ++pair)
      for (const int64_t row : {pair, pairs + pair}) {
        const auto at = static_cast<size_t>(row);
        answers.push_back({input.ids[at], input.begins[at], row, reference.empty() ? 0 : reference[at],
                           at < input.labels.size() ? input.labels[at] : AnswerLabel::unjudged});
      }
    return batch_of_answers(memory, answers, options);
  });
}

ProbeOutput probe_pairs(ShardedModel& model, Decoder& decoder, const PairInput& input, const AlignmentPlan& plan,
                        std::span<const double> reference, bool gradients, const ProbeSteps& steps) {
  const Context& context = model.context();
  const Communicator& ranks = model.mesh().group(Group::samples);
  const std::vector<Batch> batches = pair_batches(*context.memory, input, plan, reference, ranks, steps.micro_batches);
  const auto sums = std::make_shared<SequenceSums>(input.ids.size());
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  const auto kl = std::make_shared<double>(0.0);
  if (plan.asks_kl()) {
    const SequenceSums policy = sequence_sums(engine, model, decoder, batches, std::ssize(input.ids));
    const auto others = static_cast<size_t>(input.pairs());
    *kl = mismatch_kl(std::span(policy).subspan(others), reference.subspan(others));
  }
  decoder.set_objective(std::make_shared<SequenceObjective>(
      plan.of_labels() ? loss_of_labels(plan.label_loss, kl) : loss_of_pairs(plan.loss), 2, sums));
  auto [loss, output] = probe_pass(engine, model, decoder, batches, static_cast<double>(input.pairs()), gradients);
  sum_over_ranks(model, *sums);
  if (model.mesh().world().rank() != 0) return {};
  const int64_t shown = plan.of_labels() ? input.pairs() : std::ssize(*sums);
  const auto first = [&](std::span<const double> all) { return all.first(static_cast<size_t>(shown)); };
  add_numbers(context, "policy_logps", {shown}, first(*sums), output);
  if (!reference.empty()) add_numbers(context, "ref_logps", {shown}, first(reference), output);
  if (plan.of_labels()) add_numbers(context, "kl", {}, std::span(kl.get(), 1), output);
  add_numbers(context, "loss", {}, std::span(&loss, 1), output);
  return output;
}

}  // namespace nought
