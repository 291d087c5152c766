// Saves once, with the shim before the C library: faults_target save FOLDER STEP SEED RANKS, or
// faults_target train FOLDER TEXT STEPS RANKS. An error is one line and exit code 1, as of nought.
#include <cstdio>
#include <exception>
#include <string>

#include "saving.h"

int main(int count, char** arguments) {
  if (count != 6) return 2;
  const std::string task = arguments[1];
  try {
    if (task == "save")
      nought::test::save_state(arguments[2], std::stol(arguments[3]), std::stoul(arguments[4]),
                               std::stoi(arguments[5]));
    if (task == "train")
      nought::test::train_on(arguments[2], arguments[3], std::stol(arguments[4]), std::stoi(arguments[5]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
