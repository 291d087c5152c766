// The matrices that training.qat rounds, and how: to the values of the codes that `nought quantize` makes of them.
#pragma once

#include <string>
#include <vector>

#include "nought/compress/qat.h"
#include "nought/nn/model.h"
#include "nought/zero/weight_change.h"

namespace nought {

/// All matrices of linear layers of blocks, experts included. ConfigError for one whose rows groups do not divide, and
/// for one that is kept in codes or cut into tiles.
std::vector<ChangedWeight> qat_weights(const Qat& qat, const Model& model);
/// A line for the user.
std::string describe_qat_weights(const Qat& qat, const Model& model);

}  // namespace nought
