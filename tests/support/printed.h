// What a function prints to a FILE.
#pragma once

#include <cstdio>
#include <string>

namespace nought::test {

template <class F>
std::string printed(F&& f) {
  std::FILE* file = std::tmpfile();
  f(file);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace nought::test
