# Compiler settings and the helpers raven_library() and raven_unit_tests().

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(raven_flags INTERFACE)
target_compile_options(raven_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
  -fno-strict-aliasing -fstack-protector-strong -fvisibility=hidden
  # Bit-identical parameters on every machine: a*b+c stays two roundings (docs/FORMATS.md).
  -ffp-contract=off)
target_compile_definitions(raven_flags INTERFACE _GNU_SOURCE RAVEN_VERSION="${PROJECT_VERSION}")
target_include_directories(raven_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(raven_flags INTERFACE Threads::Threads m)
target_link_options(raven_flags INTERFACE -Wl,-z,relro,-z,now)
if(RAVEN_SANITIZE)
  target_compile_options(raven_flags INTERFACE
    -fsanitize=${RAVEN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(raven_flags INTERFACE -fsanitize=${RAVEN_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_definitions(raven_flags INTERFACE _FORTIFY_SOURCE=2)
endif()

# One imported pkg-config target per outside library: raven_pkg(libcurl) -> PkgConfig::libcurl
function(raven_pkg module)
  string(MAKE_C_IDENTIFIER ${module} name)
  if(NOT TARGET PkgConfig::${name})
    pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  endif()
endfunction()

# raven_library(<name> [DEPENDS <target>...] [PKG <pkg-config module>...])
# Every *.c of the current folder becomes the static library <name>.
function(raven_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;PKG" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE raven_flags ${arg_DEPENDS})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC raven_flags ${arg_DEPENDS})
  foreach(module IN LISTS arg_PKG)
    raven_pkg(${module})
    string(MAKE_C_IDENTIFIER ${module} id)
    target_link_libraries(${name} PUBLIC PkgConfig::${id})
  endforeach()
endfunction()
