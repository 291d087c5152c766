// Saves or reads once, with the shim before the C library: faults_target save FOLDER STEP SEED RANKS, faults_target
// train FOLDER TEXT STEPS RANKS, or faults_target read FOLDER. An error is one line and exit code 1, as of nought.
#include <cstdio>
#include <exception>
#include <string>

#include "reading.h"
#include "saving.h"

int main(int count, char** arguments) {
  const std::string task = count > 2 ? arguments[1] : "";
  if (count != (task == "read" ? 3 : 6)) return 2;
  try {
    if (task == "read") std::fputs(nought::test::read_all(arguments[2]).c_str(), stdout);
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
