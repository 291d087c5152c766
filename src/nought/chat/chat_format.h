// ChatFormat: the notations of conversations. Names alone, for options.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"

namespace nought {

enum class ChatFormat { chatml, llama2, llama3, mistral, zephyr, gemma, phi3, phi4, phi4_mini, deepseek, deepseek3 };

template <>
struct EnumNames<ChatFormat> {
  static constexpr std::array<std::pair<ChatFormat, std::string_view>, 11> value{{
      {ChatFormat::chatml, "chatml"},
      {ChatFormat::llama2, "llama2"},
      {ChatFormat::llama3, "llama3"},
      {ChatFormat::mistral, "mistral"},
      {ChatFormat::zephyr, "zephyr"},
      {ChatFormat::gemma, "gemma"},
      {ChatFormat::phi3, "phi3"},
      {ChatFormat::phi4, "phi4"},
      {ChatFormat::phi4_mini, "phi4-mini"},
      {ChatFormat::deepseek, "deepseek"},
      {ChatFormat::deepseek3, "deepseek3"},
  }};
};

}  // namespace nought
