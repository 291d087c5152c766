// A test with a folder of its own.
#pragma once

#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::test {

struct InFolder : testing::Test {
  const TempFolder folder;
};

}  // namespace nought::test
