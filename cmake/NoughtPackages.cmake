# Debian packages by CPack, one for each component of NoughtInstall: nought, nought-dev and nought-doc.
# scripts/package.sh makes them, and says which version they get.
set(NOUGHT_PACKAGE_VERSION ${PROJECT_VERSION} CACHE STRING "Version of the Debian packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nought)
set(CPACK_PACKAGE_VERSION ${NOUGHT_PACKAGE_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # the first lines of the components' descriptions
set(CPACK_PACKAGE_CONTACT "Nought's developers <maintainers@nought.example>")
set(CPACK_COMPONENTS_ALL program development documentation)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS # whatever umask is
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME nought)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS openmpi-bin) # mpirun starts ranks
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS nought-doc)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "trains, fine-tunes and serves language models
One program for Llama, Qwen, GPT and other models from Hugging Face folders,
over as many processes as it is given: ZeRO stages 0 to 3, tensor, sequence,
context, pipeline and expert parallelism, offload to memory and files,
adapters, preference training, and a server with the API of OpenAI.")

# What a program needs to build against the libraries: the development packages that they were built with.
file(STRINGS ${CMAKE_SOURCE_DIR}/deps/apt.txt development REGEX "^lib.*-dev$|^nlohmann|^zlib")
list(FILTER development EXCLUDE REGEX "libg(test|mock)|libcli11|libedit")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS deps/apt.txt)
list(JOIN development ", " development)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME nought-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "g++, ${development}")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "library to train and run language models in C++
Headers, static libraries, and the files by which CMake and pkg-config find
them.")

set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_NAME nought-doc)
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_DOCUMENTATION_DESCRIPTION "manual and examples of nought
The pages of the manual as Markdown, run files, and programs that use the
library.")

# Debian keeps a copyright and a changelog of every package in its own folder.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH if that is set
configure_file(cmake/changelog.Debian.in changelog.Debian @ONLY)
execute_process(COMMAND gzip -9n -c changelog.Debian WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
                OUTPUT_FILE ${CMAKE_BINARY_DIR}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
foreach(package program:nought development:nought-dev documentation:nought-doc)
  string(REPLACE : ";" package ${package})
  list(GET package 0 component)
  list(GET package 1 name)
  install(FILES cmake/copyright.Debian DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} RENAME copyright
          COMPONENT ${component})
  install(FILES ${CMAKE_BINARY_DIR}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name}
          COMPONENT ${component})
endforeach()
include(CPack)
