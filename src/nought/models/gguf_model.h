// GgufModelWriter: writes a model as a GGUF file, with llama.cpp's names and layouts.
//
// Design goals: llama.cpp computes from the file what Nought computes. What it cannot express is refused, or noted for
// the user. The facts (keys, tensor names, the order of rotated rows) are those of llama.cpp's convert_hf_to_gguf.py,
// src/llama-arch.cpp and src/models.
// Non-goals: deepseek and gpt_oss; quantisation finer than q8_0.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/decoder.h"
#include "nought/models/weight_sink.h"

namespace nought {

class GgufModelWriter final : public WeightSink {
 public:
  /// Matrices are written in `type`; norms, biases, routers and embeddings of positions in f32; a q8_0 matrix whose
  /// rows are not whole blocks in f16. `name` is shown to users of the file. `tokenizer` is the tokenizer's metadata.
  /// ConfigError for a model that llama.cpp does not support.
  GgufModelWriter(std::filesystem::path path, const Decoder& model, GgufType type, const std::string& name,
                  const GgufMetadata& tokenizer);

  void write(std::string_view name, Interval elements, const Tensor& source) override;
  void finish() override;

  const std::vector<GgufTensor>& tensors() const { return writer_->tensors(); }
  /// One line for each thing that llama.cpp computes differently.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  /// Where a parameter's elements go. They are written as (x + offset) * factor.
  struct Place {
    size_t tensor = 0;
    int64_t first = 0;          // the element of the tensor at which the parameter begins
    int64_t row = 1;            // elements of a row
    int64_t head = 0;           // rows of a head, if the rows of its halves are interleaved; 0: they keep their order
    int64_t heads_of_each = 0;  // of rows [head][q, k, v][head_dim], which become [q, k, v][head][head_dim]
    bool transposed = false;    // rows become columns
    float offset = 0, factor = 1;

    bool keeps_order() const { return head == 0 && heads_of_each == 0; }
    /// Where a row goes.
    int64_t target_row(int64_t row_index, int64_t head_dim) const;
  };
  /// A matrix that is held until it is whole, as its rows become columns.
  struct Held {
    std::vector<float> values;
    int64_t filled = 0;
  };
  void write_transposed(const std::string& name, const Place& place, Interval elements, const Tensor& source);
  void place_parameters(const Decoder& model, GgufType type);
  void place(const Parameter& parameter, const std::string& target, int64_t expert, int64_t experts, GgufType type);
  void add_rope_factors();

  ModelConfig config_;
  std::vector<std::string> notes_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> tensor_of_;
  std::map<std::string, Place, std::less<>> places_;
  std::map<std::string, Held> held_;
  std::vector<std::pair<size_t, std::vector<float>>> rope_factors_;
  std::optional<GgufWriter> writer_;
};

}  // namespace nought
