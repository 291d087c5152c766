// What a process does with stdin, stdout and stderr before anything else.
#pragma once

namespace nought {

/// Opens /dev/null in place of those that the caller has closed. Without that the next file that is opened gets their
/// number, and what is printed goes into it. To be called before any file is opened.
void open_missing_streams();

}  // namespace nought
