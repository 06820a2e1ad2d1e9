# Makes OUT (a C file) with the kernels' text and, when NVCC is not empty, their CUDA images and PTX.
# Fails when a kernel spills registers. Leaves cuda_<sm>.log beside OUT: what ptxas says about
# registers and memory (resource_report.sh reads it).
# cmake -DFILES=…;… -DNVCC=path-or-empty -DOUT=file.c -P embed.cmake
cmake_minimum_required(VERSION 3.25)
get_filename_component(folder ${OUT} DIRECTORY)
set(wanted_sm 75 80 86 89 90 100 120)
set(ptx_version 6.3) # the oldest that knows sm_75; nvcc writes its own, which older drivers refuse

# ret: the bytes of a file as C numbers.
function(bytes_of file ret)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes
    "${bytes}")
  set(${ret} "${bytes}" PARENT_SCOPE)
endfunction()

function(run_or_fail what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed OR said MATCHES "warning")
    message(FATAL_ERROR "${what}:\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

# Appends one image to `code` and its line to `table`.
function(add_image sm)
  set(cubin ${folder}/cuda_${sm}.cubin)
  run_or_fail("kernels for sm_${sm}" ${NVCC} -cubin -arch=sm_${sm} ${options} -o ${cubin} ${source})
  file(WRITE ${folder}/cuda_${sm}.log "${said}")
  if(said MATCHES "[1-9][0-9]* bytes spill")
    message(FATAL_ERROR "a kernel spills registers on sm_${sm}:\n${said}")
  endif()
  bytes_of(${cubin} bytes)
  string(APPEND code "static const unsigned char image_${sm}[] = {\n${bytes}};\n\n")
  string(APPEND table "    {${sm}, image_${sm}, sizeof image_${sm}},\n")
  set(code "${code}" PARENT_SCOPE)
  set(table "${table}" PARENT_SCOPE)
endfunction()

set(text "")
foreach(file IN LISTS FILES)
  file(READ ${file} one)
  string(APPEND text "${one}")
endforeach()
set(source ${folder}/kernels.cu)
file(WRITE ${source} "${text}")

bytes_of(${source} bytes)
set(code "/* Made by embed.cmake. */\n#include \"agent/kernels/kernels.h\"\n\n")
string(APPEND code "const char kernels_source[] = {\n${bytes}0};\n\n")
set(table "")
set(ptx "NULL")
if(NVCC)
  set(options -fmad=false -Xptxas -v -Werror all-warnings)
  run_or_fail("${NVCC}" ${NVCC} --list-gpu-arch)
  set(known "${said}")
  foreach(sm IN LISTS wanted_sm)
    if(known MATCHES "compute_${sm}\n")
      add_image(${sm})
    endif()
  endforeach()

  set(ptx_file ${folder}/kernels.ptx)
  run_or_fail("PTX" ${NVCC} -ptx -arch=compute_75 -fmad=false -o ${ptx_file} ${source})
  file(READ ${ptx_file} made)
  string(REGEX REPLACE "\n\\.version [0-9.]+" "\n.version ${ptx_version}" made "${made}")
  file(WRITE ${ptx_file} "${made}")
  get_filename_component(tools ${NVCC} DIRECTORY)
  run_or_fail("PTX ${ptx_version}" ${tools}/ptxas -arch=sm_75 -o ${folder}/ptx.cubin ${ptx_file})
  bytes_of(${ptx_file} bytes)
  string(APPEND code "static const char ptx[] = {\n${bytes}0};\n\n")
  set(ptx "ptx")
endif()

# The last line of the table is no image: C has no arrays of length 0.
string(APPEND code "static const struct kernels_image images[] = {\n${table}    {0, NULL, 0},\n};

void kernels_cuda_images(const struct kernels_image **ret, size_t *ret_count)
{
    *ret = images;
    *ret_count = sizeof images / sizeof images[0] - 1;
}

const char *kernels_cuda_ptx(void)
{
    return ${ptx};
}
")
file(WRITE ${OUT} "${code}")
