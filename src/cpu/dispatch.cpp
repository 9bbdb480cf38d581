// Chooses the kernels for the machine the library runs on.
#include "cpu/dispatch.hpp"

#include <cstdlib>
#include <string>

#include "mhla/attention.hpp"

namespace mhla {
namespace {

enum class InstructionSet { portable, avx2, avx512 };

InstructionSet best_supported() {
#if defined(MHLA_HAVE_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return InstructionSet::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

InstructionSet choose() {
  const InstructionSet best = best_supported();
  const char* wanted = std::getenv("MHLA_CPU_ISA");
  if (wanted == nullptr) return best;
  InstructionSet forced = best;
  if (std::string(wanted) == "portable") {
    forced = InstructionSet::portable;
  } else if (std::string(wanted) == "avx2") {
    forced = InstructionSet::avx2;
  } else if (std::string(wanted) == "avx512") {
    forced = InstructionSet::avx512;
  } else {
    throw Error("MHLA_CPU_ISA is '" + std::string(wanted) + "'; it may be portable, avx2 or avx512");
  }
  if (forced > best) throw Error("MHLA_CPU_ISA is '" + std::string(wanted) + "', which this machine does not support");
  return forced;
}

InstructionSet chosen() {
  static const InstructionSet kChosen = choose();
  return kChosen;
}

}  // namespace

std::string_view cpu_isa() {
  switch (chosen()) {
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::portable:
      break;
  }
  return "portable";
}

namespace cpu {

template <typename T>
const Kernels<T>& kernels() {
#if defined(MHLA_HAVE_X86)
  switch (chosen()) {
    case InstructionSet::avx512:
      return avx512::table<T>();
    case InstructionSet::avx2:
      return avx2::table<T>();
    case InstructionSet::portable:
      break;
  }
#endif
  return portable::table<T>();
}

template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace cpu
}  // namespace mhla
