# SentencePiece: the installed library, or the copy that tools/bootstrap.sh left in .deps for machines where nothing can be
# installed.
find_path(MHLA_SENTENCEPIECE_INCLUDE sentencepiece_processor.h PATHS "${MHLA_DEPS_INCLUDE}")
find_library(MHLA_SENTENCEPIECE_LIBRARY NAMES sentencepiece PATHS "${MHLA_DEPS_INCLUDE}/../lib")
if(NOT MHLA_SENTENCEPIECE_INCLUDE OR NOT MHLA_SENTENCEPIECE_LIBRARY)
  message(FATAL_ERROR "SentencePiece is missing (Debian: libsentencepiece-dev); run tools/bootstrap.sh")
endif()
add_library(sentencepiece INTERFACE IMPORTED GLOBAL)
target_include_directories(sentencepiece SYSTEM INTERFACE "${MHLA_SENTENCEPIECE_INCLUDE}")
target_link_libraries(sentencepiece INTERFACE "${MHLA_SENTENCEPIECE_LIBRARY}")
# Before torch, as options are: both libraries have a FLAGS_minloglevel, and the one that is found first serves both. That
# of torch is the smaller; SentencePiece would write over the flags behind it, and failed allocations would abort.
target_link_options(sentencepiece INTERFACE
                    "LINKER:--push-state,--no-as-needed,${MHLA_SENTENCEPIECE_LIBRARY},--pop-state")
