// BlockOptions: what the layers of a decoder's blocks are made with: the sizes and names of each from the ModelConfig.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nought/models/config.h"
#include "nought/models/names.h"
#include "nought/nn/delta_net.h"
#include "nought/nn/model.h"
#include "nought/nn/short_conv.h"
#include "nought/parallel/model_ranks.h"

namespace nought {

struct BlockOptions {
  // They stay.
  const ModelConfig& config;
  const ModelRanks& ranks;
  const RecomputeOptions& recompute;
  std::shared_ptr<Fp8Recipe> fp8;  // null: nothing is rounded

  /// The heads of this rank.
  PackedHeads heads() const;
  Norm::Options norm() const;
  SelfAttention::Options attention(const WeightNames::Layer& names, int64_t index) const;
  ShortConvLayer::Options short_conv(const WeightNames::Layer& names) const;
  DeltaNet::Options delta(const WeightNames::Layer& names) const;
  LatentProjection::Options latent(const WeightNames::Layer& names) const;
  /// tiles: those of the block's Unit that cut it; none where Units have no tiles.
  Mlp::Options mlp(int64_t width, std::vector<std::string> up, std::string down, bool bias,
                   std::vector<Unit*> tiles) const;
  Moe::Options experts(const WeightNames::Layer& names, std::vector<Unit*> tiles,
                       std::vector<Unit*> shared_tiles) const;

 private:
  Linear::Options linear(int64_t in, std::vector<int64_t> out, std::vector<std::string> names, bool bias,
                         double std) const;
  double residual_std() const { return config.initializer_range * config.residual_initializer_scale; }
};

}  // namespace nought
