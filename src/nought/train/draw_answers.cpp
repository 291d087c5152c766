#include "nought/train/draw_answers.h"

#include "nought/base/math.h"

namespace nought {

RolloutOptions rollout_options(const AlignmentPlan& plan, const std::vector<int32_t>& stop_ids, int64_t at_once) {
  return {.max_completion_length = plan.policy_loss.max_completion_length,
          .sampling = {.temperature = plan.policy_loss.temperature,
                       .top_k = plan.sampling.top_k,
                       .top_p = plan.sampling.top_p,
                       .min_p = plan.sampling.min_p,
                       .repetition_penalty = plan.sampling.repetition_penalty},
          .stop_ids = stop_ids,
          .sequences = at_once};
}

std::vector<std::vector<int32_t>> draw_answers(const RunPlan& plan, ShardedModel& model, Decoder& decoder,
                                               std::span<const AnswerRequest> requests, const RolloutOptions& options) {
  model.settle();  // ranks make different passes from here on
  // Ranks that gather parameters or spread experts make the same passes; others write a share of the answers each.
  Communicator& samples = model.mesh().group(Group::samples);
  const bool together = plan.layout.writes_answers_together();
  const auto count = std::ssize(requests);
  const Interval own =
      together ? Interval{0, count}
               : Interval{count * samples.rank() / samples.size(), count * (samples.rank() + 1) / samples.size()};
  model.expect(decoder.passes(/*backward=*/false));
  std::vector<std::vector<int32_t>> answers =
      write_answers(decoder, model.context(), model.options().dtype,
                    requests.subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size())), options);
  model.expect({});
  if (together || samples.size() == 1) return answers;
  return answers_of_ranks(samples, model.context(), answers, ceil_div(count, int64_t{samples.size()}),
                          options.max_completion_length);
}

}  // namespace nought
