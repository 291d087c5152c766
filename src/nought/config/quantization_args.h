// QuantizationArgs: the section quantization_config of RUN.json, with the keys of transformers' BitsAndBytesConfig.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"
#include "nought/kernels/code_kind.h"

namespace nought {

template <>
struct EnumNames<CodeKind> {
  static constexpr std::array<std::pair<CodeKind, std::string_view>, 2> value{
      {{CodeKind::nf4, "nf4"}, {CodeKind::fp4, "fp4"}}};
};

struct QuantizationArgs {
  Setting<std::string> quant_method{std::string("bitsandbytes")};
  Setting<bool> load_in_4bit{false};
  Setting<bool> load_in_8bit{false};
  Setting<CodeKind> bnb_4bit_quant_type{CodeKind::fp4};
  Setting<bool> bnb_4bit_use_double_quant{false};
  Setting<std::string> bnb_4bit_compute_dtype;
  Setting<std::string> bnb_4bit_quant_storage{std::string("uint8")};

  template <class V>
  void visit(V& v) {
    v("quant_method", quant_method, "bitsandbytes");
    v("load_in_4bit", load_in_4bit,
      "keep the matrices of the frozen model's linear layers, but its head's and experts', in codes of 4 bits (QLoRA)");
    v("load_in_8bit", load_in_8bit, "keep matrices and tables of the frozen model in blocks of 8-bit codes (Q8_0)");
    v("bnb_4bit_quant_type", bnb_4bit_quant_type, "what the codes stand for: nf4 or fp4");
    v("bnb_4bit_use_double_quant", bnb_4bit_use_double_quant,
      "keep the scales of the codes as codes too: 4.127 bits for a weight in place of 4.5");
    v("bnb_4bit_compute_dtype", bnb_4bit_compute_dtype,
      "the dtype of products, which is that of the run (training.bf16, fp16): any other is refused");
    v("bnb_4bit_quant_storage", bnb_4bit_quant_storage,
      "the dtype in which bitsandbytes holds the bytes: it changes nothing");
  }
};

}  // namespace nought
