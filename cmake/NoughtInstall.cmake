# cmake --install, in three components: program (bin/nought, man pages, completion), development (headers, static libraries,
# a package for find_package(nought), whose target nought::nought stands for all of the libraries, and one for pkg-config)
# and documentation.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY NOUGHT_LIBRARIES)
list(REMOVE_ITEM libraries nought_cli) # the program's own
list(REMOVE_DUPLICATES libraries)

add_library(nought_all INTERFACE)
set_target_properties(nought_all PROPERTIES EXPORT_NAME nought)
target_link_libraries(nought_all INTERFACE ${libraries})
target_compile_features(nought_all INTERFACE cxx_std_20)
add_library(nought::nought ALIAS nought_all)

install(TARGETS nought_all ${libraries} EXPORT noughtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT development)
install(CODE "
  set(SOURCE \"${CMAKE_CURRENT_SOURCE_DIR}\")
  set(INCLUDE \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
  include(\"${CMAKE_CURRENT_SOURCE_DIR}/cmake/InstallHeaders.cmake\")" COMPONENT development)
if(TARGET nought)
  install(TARGETS nought RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The program writes its man pages and completion itself, from the tables of its command line and of its keys.
  install(CODE "
    set(nought \"$<TARGET_FILE:nought>\")
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}\")
    execute_process(COMMAND \${nought} man --output \${share}/man COMMAND_ERROR_IS_FATAL ANY)
    foreach(shell bash:bash-completion/completions/nought zsh:zsh/site-functions/_nought fish:fish/vendor_completions.d/nought.fish)
      string(REPLACE \":\" \";\" shell \${shell})
      list(GET shell 0 name)
      list(GET shell 1 file)
      get_filename_component(folder \${share}/\${file} DIRECTORY)
      file(MAKE_DIRECTORY \${folder})
      execute_process(COMMAND \${nought} completion \${name} OUTPUT_FILE \${share}/\${file} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    message(STATUS \"Installing: man pages and completion in \${share}\")
    if(DEFINED ENV{NOUGHT_PACKAGE}) # scripts/package.sh names what the program is part of; nought info says it
      file(WRITE \${share}/nought/package \"\$ENV{NOUGHT_PACKAGE}\\n\")
      file(GLOB pages \${share}/man/man*/*)
      execute_process(COMMAND gzip -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)
    endif()" COMPONENT program)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nought)
install(EXPORT noughtTargets NAMESPACE nought:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/noughtConfig.cmake.in noughtConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(noughtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/noughtConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/noughtConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

# Folders stand from the ground up, and a linker wants whoever calls first.
list(REVERSE libraries)
list(TRANSFORM libraries REPLACE "^nought_" "-lnought_")
list(JOIN libraries " " NOUGHT_LIBRARY_FLAGS)
file(RELATIVE_PATH NOUGHT_PREFIX_OF_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/nought.pc.in nought.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/nought.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT documentation)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT documentation
        PATTERN CMakeLists.txt EXCLUDE)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
