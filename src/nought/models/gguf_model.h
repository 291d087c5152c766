// GgufModelWriter: writes a model as a GGUF file, with llama.cpp's names and layouts.
//
// Design goals: llama.cpp computes from the file what Nought computes. What it cannot express is refused, or noted for
// the user. The facts (keys, tensor names, the order of rotated rows) are those of llama.cpp's conversion scripts,
// src/llama-arch.cpp and src/models.
// Non-goals: weighing errors by what activations are (importance matrices).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/decoder.h"
#include "nought/models/gguf_mixtures.h"
#include "nought/models/gguf_places.h"
#include "nought/models/weight_sink.h"

namespace nought {

class GgufModelWriter final : public WeightSink {
 public:
  /// Matrices are written in the types of the mixture; norms, biases, routers and embeddings of positions in f32.
  /// `name` is shown to users of the file. `tokenizer` is the tokenizer's metadata. ConfigError for a model that
  /// llama.cpp does not support.
  GgufModelWriter(std::filesystem::path path, const Decoder& model, const GgufMixture& types, const std::string& name,
                  const GgufMetadata& tokenizer);

  void write(std::string_view name, Interval elements, const Tensor& source) override;
  void finish() override;

  const std::vector<GgufTensor>& tensors() const { return writer_->tensors(); }
  /// One line for each thing that llama.cpp computes differently.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Placed {
    GgufPlace place;
    std::vector<size_t> tensors;  // the number of each part's tensor
  };
  /// A sheet of a parameter that is held until it is whole.
  struct Held {
    std::vector<float> values;
    int64_t filled = 0;
  };
  void write_in_order(const Placed& placed, Interval elements, const Tensor& source);
  void write_sheet(const Placed& placed, int64_t sheet, const std::vector<float>& values);
  void place_parameters(const Decoder& model, const GgufMixture& types);
  GgufType type_of(const Parameter& parameter, const GgufPart& part, const GgufMixture& types) const;
  void add_rope_factors();

  ModelConfig config_;
  std::vector<std::string> notes_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> tensor_of_;
  std::map<std::string, Placed, std::less<>> places_;
  std::map<std::pair<std::string, int64_t>, Held> held_;
  std::vector<std::pair<size_t, std::vector<float>>> rope_factors_;
  std::optional<GgufWriter> writer_;
};

}  // namespace nought
