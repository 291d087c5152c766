#include "nought/cli/standard_streams.h"

#include <cerrno>
#include <initializer_list>

#include <fcntl.h>
#include <unistd.h>

namespace nought {

void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // open() gives the least number that is free, which is this one: those below are open by now.
    if (open("/dev/null", O_RDWR) != stream) _exit(1);  // there is nowhere to say so
  }
}

}  // namespace nought
