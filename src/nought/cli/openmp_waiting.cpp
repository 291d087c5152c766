#include "nought/cli/openmp_waiting.h"

#include <cstdlib>

#include <unistd.h>

namespace nought {

void bound_openmp_waiting(const std::string& program, const std::vector<std::string>& arguments, int threads) {
  if (threads <= 1 || std::getenv(kSpinVariable) != nullptr || std::getenv(kWaitPolicyVariable) != nullptr) return;
  if (setenv(kSpinVariable, kSpinRounds, 0) != 0) return;
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
}

}  // namespace nought
