// nought probe: logits, loss and gradients of given tokens, in any layout, for comparison with other engines.
#include "nought/train/probe.h"

#include <filesystem>
#include <memory>

#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/comm/flight_timeout.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors_writer.h"
#include "nought/models/context_choice.h"
#include "nought/models/expert_spread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/train/probe_pairs.h"
#include "nought/train/probe_policy.h"
#include "nought/train/probe_ppo.h"
#include "nought/train/probe_scores.h"
#include "nought/train/teacher.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

struct ProbeOptions {
  std::string model_dir, run_file, input, output, reference;
  std::vector<std::string> overrides;
  AdapterFlags adapters;
  LaunchOptions launch;
  bool gradients = false, logprobs = false;

  /// The plan with the folder of its teacher, which --reference names as well.
  RunPlan with_teacher(RunPlan plan) const {
    if (plan.alignment.distillation && !reference.empty()) plan.alignment.teacher_model = reference;
    return plan;
  }
  RunPlan plan(int world_size) const {
    return with_teacher(resolve(load_run_config(run_file, overrides, names_gpu(launch.device)), world_size));
  }
};

void require_output_folder(const ProbeOptions& options) {
  const std::filesystem::path folder = std::filesystem::absolute(options.output).parent_path();
  require<IoError>(std::filesystem::is_directory(folder), "--output {}: {} is not a folder", options.output,
                   folder.string());
}

/// Whether the texts are scored by a classifier's head. ConfigError if the model does not do what is asked of it.
bool scores(const RunPlan& plan, const ModelConfig& config) {
  config.require_head("MODEL_DIR");
  require<ConfigError>(config.classifier.has_value() || !plan.alignment.of_scores(),
                       "alignment.method = {}: the model is no classifier", enum_name(plan.alignment.method));
  require<ConfigError>(!config.classifier || plan.alignment.of_scores() || !plan.alignment.of_answers(),
                       "alignment.method = {}: the model is a classifier, which predicts no tokens",
                       enum_name(plan.alignment.method));
  return config.classifier.has_value();
}

/// The losses of PPO are of a policy and of a value model; those of numbers are of neither.
void validate_ppo(const ProbeOptions& options, const RunPlan& plan, int64_t vocab_size) {
  const Context context = Context::cpu();
  if (holds_ppo_numbers(options.input)) {
    probe_ppo_numbers(context, options.input, plan.alignment);
    return;
  }
  require<ConfigError>(!plan.alignment.ppo->value_model.empty(),
                       "alignment.method = ppo: there is no value model: set alignment.value_model to the folder of a "
                       "classifier with one label");
  const ModelConfig config = value_model_config(plan);
  require<ConfigError>(config.vocab_size == vocab_size,
                       "alignment.value_model: {} has {} tokens, the model {}: they must read the same tokens",
                       plan.alignment.ppo->value_model, config.vocab_size, vocab_size);
  read_ppo_input(context, options.input, vocab_size, plan.alignment);
}

void validate_probe(const ProbeOptions& options) {
  const RunPlan plan = options.plan(static_cast<int>(options.launch.ranks.value_or(1)));
  const ModelSource source(find_model(options.model_dir, options.adapters));
  require_cuttable(source.config(), plan.layout.tensor_ranks, plan.layout.ranks);
  require_spreadable(source.config(), plan.layout.expert_ranks, plan.layout.token_ranks() / plan.layout.replicas);
  if (plan.layout.context_method == ContextMethod::heads)
    require_heads_for(source.config(), plan.layout.context_ranks, plan.layout.tensor_ranks, plan.layout.ranks);
  require_stages(plan, source.config());
  const Context context = Context::cpu();
  require<ConfigError>(options.reference.empty() || plan.alignment.has_reference() || plan.alignment.of_rewards() ||
                           plan.alignment.distillation,
                       "--reference {}: alignment.method = {} asks no reference model", options.reference,
                       enum_name(plan.alignment.method));
  if (scores(plan, source.config())) {
    require<ConfigError>(!options.logprobs, "--logprobs: a classifier predicts no tokens: leave it out");
    read_score_input(context, options.input, source.config(), plan.alignment.method == AlignmentMethod::reward);
    return require_output_folder(options);
  }
  if (plan.alignment.distillation) {
    require<ConfigError>(!plan.alignment.teacher_model.empty(),
                         "alignment.method = gkd: nobody teaches: give --reference, the folder of the teacher");
    check_teacher(plan, source.config().vocab_size);
  }
  if (plan.alignment.of_answers() && !plan.alignment.distillation) {
    require<ConfigError>(!options.logprobs, "--logprobs: pairs have policy_logps: leave it out");
    if (plan.alignment.ppo) {
      validate_ppo(options, plan, source.config().vocab_size);
    } else if (plan.alignment.of_rewards()) {
      read_policy_input(context, options.input, source.config().vocab_size, plan.alignment);
    } else {
      read_pair_input(context, options.input, source.config().vocab_size, plan.alignment.of_labels());
    }
    return require_output_folder(options);
  }
  const ProbeInput input = read_probe_input(context, options.input, source.config().vocab_size);
  if (plan.layout.pipeline.ranks > 1)
    check_micro_batches(plan.layout.pipeline,
                        probe_micro_batches(input, plan.layout.data_ranks(), plan.layout.accumulation));
  require_output_folder(options);
}

/// The model that the probed one is compared with: one of its own, or the one that is probed, without adapters.
struct ProbeReference {
  ProbeReference(const ProbeOptions& options, const RunPlan& plan, const Mesh& mesh, const Context& context,
                 int64_t vocab_size)
      : source(find_model(options.reference.empty() ? options.model_dir : options.reference, mesh.world(), context)),
        decoder(source.config(), plan.layout.recompute, plan.layout.fp8,
                ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, source.config()),
                           plan.layout.context_method)),
        model(context, mesh, decoder, probe_sharding(plan, /*gradients=*/false)),
        engine(model) {
    require<ConfigError>(source.config().vocab_size == vocab_size,
                         "the reference model {} has {} tokens, the model {}: they must read the same tokens",
                         source.folder().string(), source.config().vocab_size, vocab_size);
    model.load(source.weights());
    engine.set_schedule(schedule_at(mesh, plan.layout.pipeline));
  }

  ModelSource source;
  Decoder decoder;
  ShardedModel model;
  Engine engine;
};

/// The log-probabilities of pairs under the reference.
SequenceSums reference_sums(const ProbeOptions& options, const RunPlan& plan, const PairInput& input, const Mesh& mesh,
                            const Context& context, int64_t vocab_size) {
  ProbeReference reference(options, plan, mesh, context, vocab_size);
  const std::vector<Batch> batches =
      pair_batches(*context.memory, input, plan.alignment, {}, mesh.group(Group::samples), plan.layout.accumulation);
  return sequence_sums(reference.engine, reference.model, reference.decoder, batches, std::ssize(input.ids));
}

ProbeOutput probe_ppo_of(const ProbeOptions& options, const RunPlan& plan, ShardedModel& model, Decoder& decoder,
                         const ProbeSteps& steps) {
  const Context& context = model.context();
  if (holds_ppo_numbers(options.input))
    return model.mesh().world().rank() == 0 ? probe_ppo_numbers(context, options.input, plan.alignment) : ProbeOutput();
  ValueModel values(plan, probe_sharding(plan, options.gradients), model.mesh(), context);
  values.load_start();
  const int64_t vocab_size = decoder.config().vocab_size;
  const auto ask = [&](const MakeBatches& batches, std::span<const int64_t> lengths) {
    ProbeReference reference(options, plan, model.mesh(), context, vocab_size);
    return token_logs(reference.engine, reference.model, reference.decoder, batches, lengths,
                      plan.alignment.policy_loss.temperature);
  };
  return probe_ppo(model, decoder, values, read_ppo_input(context, options.input, vocab_size, plan.alignment),
                   plan.alignment, options.gradients, steps, ask);
}

ProbeOutput probe_pairs_of(const ProbeOptions& options, const RunPlan& plan, ShardedModel& model, Decoder& decoder,
                           const ProbeSteps& steps) {
  const Context& context = model.context();
  const int64_t vocab_size = decoder.config().vocab_size;
  if (plan.alignment.ppo) return probe_ppo_of(options, plan, model, decoder, steps);
  if (plan.alignment.of_rewards())
    return probe_policy(model, decoder, read_policy_input(context, options.input, vocab_size, plan.alignment),
                        plan.alignment, options.gradients, steps);
  const PairInput input = read_pair_input(context, options.input, vocab_size, plan.alignment.of_labels());
  const SequenceSums reference = plan.alignment.has_reference()
                                     ? reference_sums(options, plan, input, model.mesh(), context, vocab_size)
                                     : SequenceSums();
  return probe_pairs(model, decoder, input, plan.alignment, reference, options.gradients, steps);
}

ProbeOutput probe_scores_of(const ProbeOptions& options, const RunPlan& plan, ShardedModel& model, Decoder& decoder,
                            const ProbeSteps& steps) {
  const ScoreInput input = read_score_input(model.context(), options.input, decoder.config(),
                                            plan.alignment.method == AlignmentMethod::reward);
  return probe_scores(model, decoder, input, plan.alignment, options.gradients, steps);
}

void probe_rank(const ProbeOptions& options, Communicator& world, const Context& context) {
  const RunPlan plan = options.plan(world.size());
  watch_calls(world, plan);
  const FlightFolder flight(world, own_flight_folder(world, context));
  const FoundModel found = find_model(options.model_dir, options.adapters, world, context);
  say_choice(found.choice);
  const ModelSource source(found);
  const Mesh mesh(world, plan.layout.grid());
  Decoder decoder(source.config(), plan.layout.recompute, plan.layout.fp8,
                  ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, source.config()),
                             plan.layout.context_method));
  if (options.gradients) apply(plan.layout.freezing, decoder);
  ShardedModel model(context, mesh, decoder, probe_sharding(plan, options.gradients));
  model.load(source.weights());
  ProbeSteps steps{.micro_batches = plan.layout.accumulation, .schedule = schedule_at(mesh, plan.layout.pipeline)};
  std::optional<Teacher> teacher;
  if (plan.alignment.distillation) {
    teacher.emplace(plan, mesh, context);
    decoder.set_objective(teacher->objective(plan.alignment.distillation->beta));
    steps.prepare = [&teacher](std::span<Batch> batches) { teacher->ask(batches); };
  } else if (plan.alignment.of_answers() || decoder.config().classifier) {
    const ProbeOutput output = decoder.config().classifier ? probe_scores_of(options, plan, model, decoder, steps)
                                                           : probe_pairs_of(options, plan, model, decoder, steps);
    if (world.rank() != 0) return;
    save_safetensors(options.output, output);
    fmt::print("loss {}  {} tensors in {}\n", output.back().second.item(), output.size(), options.output);
    return;
  }
  const ProbeInput input = read_probe_input(context, options.input, decoder.config().vocab_size);
  ProbeOutput output = probe(model, decoder, input, options.gradients, steps);
  if (world.rank() != 0) return;
  const Tensor logits = output[output.size() - 2].second, loss = output.back().second;
  if (options.logprobs) output.emplace_back("logprobs", label_log_probabilities(context, input, logits));
  save_safetensors(options.output, output);
  fmt::print("loss {}  logits {}  {} tensors in {}\n", loss.item(), logits.shape().str(), output.size(),
             options.output);
}

}  // namespace

void add_probe(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "probe", "Writes logits, loss and gradients of given tokens",
                  {"nought probe MODEL_DIR --input batch.safetensors --output out.safetensors --grads",
                   "nought probe MODEL_DIR --input batch.safetensors --output out.safetensors --ranks 2 \\",
                   "    --set deepspeed.zero_optimization.stage=3",
                   "nought probe MODEL_DIR --input batch.safetensors --output out.safetensors --grads --ranks 2 \\",
                   "    --set training.parallelism_config.pp_size=2",
                   "nought probe MODEL_DIR --input pairs.safetensors --output out.safetensors --grads \\",
                   "    --reference REFERENCE_DIR --set alignment.method=dpo"});
  const auto options = std::make_shared<ProbeOptions>();
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("RUN.json", options->run_file,
                      "A run whose layout, micro-batches and precision to use (default: fp32, stage 0)");
  command->add_option("--input", options->input, "safetensors with input_ids and labels, [batch, length]")->required();
  command->add_option("--output", options->output, "safetensors to write: logits, loss, grad.NAME")->required();
  command->add_option(
      "--reference", options->reference,
      "With alignment.method = dpo, kto or ppo: the folder of the reference model (default: MODEL_DIR without "
      "adapters); with gkd: that of the teacher");
  command->add_flag("--grads", options->gradients, "Run the backward pass and write every gradient");
  command->add_flag("--logprobs", options->logprobs,
                    "Write the log-probability of each label, too: those of tokens that generate --logprobs wrote");
  add_adapter_options(*command, options->adapters);
  add_override_option(*command, options->overrides, "training.bf16=true");
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return launch(
          invocation, options->launch, [&] { validate_probe(*options); },
          [&](Communicator& world, const Context& context) { probe_rank(*options, world, context); });
    };
  });
}

}  // namespace nought
