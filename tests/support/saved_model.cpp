#include "support/saved_model.h"

#include "nought/comm/thread.h"
#include "nought/weights/hf_folder.h"

namespace nought::test {

std::filesystem::path SavedModel::save(const std::filesystem::path& folder) const {
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    Decoder decoder(model);
    if (prepare) prepare(decoder);
    ShardedModel sharded(context, world, decoder, settings);
    weights.empty() ? sharded.load(InitialState(seed)) : sharded.load(HfWeights(weights, decoder));
    CheckpointInfo saved = info;
    saved.world_size = ranks;
    save_checkpoint(sharded, saved, folder, [&](const std::filesystem::path& to) {
      if (!tokenizer.empty()) export_companions(model, settings.dtype, {tokenizer}, to);
    });
  });
  return checkpoint_path(folder, info.step);
}

void write_weights(const std::filesystem::path& folder, const ModelConfig& model,
                   const std::function<float(int64_t)>& value) {
  const auto memory = Memory::create();
  const Decoder decoder(model);
  HfFolderWriter writer(folder, weight_specs(decoder, [](const Parameter&) { return DType::f32; }));
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) {
      const Tensor values = Tensor::zeros(*memory, parameter.shape, DType::f32, Category::parameters);
      float* const at = values.data<float>();
      for (int64_t i = 0, count = values.numel(); value && i < count; ++i) at[i] = value(i);
      writer.write(parameter.name, values);
    }
  writer.finish();
}

}  // namespace nought::test
