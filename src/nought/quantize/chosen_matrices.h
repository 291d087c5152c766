// ChosenMatrices: which parameters of a model become codes, and what reports and folders call them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nought/quantize/folder_format.h"
#include "nought/weights/model_source.h"

namespace nought {

/// "model.layers.0.mlp.up_proj"; a stack of experts is called as its module.
std::string module_of(const std::string& weight);
/// What modules of all layers, and of all experts, are called together: "mlp.experts.N.up_proj".
std::string kind_of(const std::string& weight);

class ChosenMatrices {
 public:
  /// skip: patterns of parameters that stay dense. ConfigError for a pattern that nothing is called by, and where
  /// nothing becomes codes.
  ChosenMatrices(const ModelSource& source, const std::vector<std::string>& skip, const MatrixRule& rule,
                 const FolderFormat& format, std::string_view format_name);

  bool becomes_codes(const Parameter& parameter) const { return codes_.contains(parameter.name); }
  /// ConfigError if a stack of experts is among them: methods that go by inputs have none of a stack's.
  void require_no_stacks(const ModelSource& source) const;
  FolderModules modules() const;
  /// Names of those whose sizes do not fit the format.
  const std::vector<std::string>& unfit() const { return unfit_; }

 private:
  std::set<std::string> codes_, dense_;
  std::vector<std::string> unfit_, routers_;
};

}  // namespace nought
