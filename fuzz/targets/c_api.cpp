// The C interface: any numbers in its structs give a status, and a message that names an argument where it is not OK.
#include <cstring>

#include "mhla/mhla.h"
#include "support/choices.hpp"
#include "support/target.hpp"

using namespace mhla;
using fuzz::Choices;

namespace {

// Whether it went well; otherwise there must be a message.
bool ok(mhla_status status) {
  if (status == MHLA_OK) return true;
  fuzz::expect(std::strlen(mhla_last_error()) > 8, "a failure without a message");
  fuzz::expect(status == MHLA_BAD_ARGUMENT || status == MHLA_OUT_OF_MEMORY, mhla_last_error());
  return false;
}

std::int32_t option(Choices& choices, int count) {
  return choices.rarely() ? static_cast<std::int32_t>(choices.size(-2, 9))
                          : static_cast<std::int32_t>(choices.number(0, count - 1));
}

mhla_options options_of(Choices& choices) {
  mhla_options o = mhla_default_problem().options;
  o.feature_map = option(choices, 5);
  o.normalizer = option(choices, 3);
  o.masking = option(choices, 3);
  o.algorithm = option(choices, 3);
  o.scale = choices.factor();
  o.eps = choices.factor();
  o.feature_eps = choices.factor();
  return o;
}

mhla_partition partition_of(Choices& choices) {
  mhla_partition p = mhla_default_problem().partition;
  const int axes = static_cast<int>(choices.size(1, 3));
  std::int64_t sizes[3], counts[3];
  for (int axis = 0; axis < 3; ++axis) sizes[axis] = choices.size(0, 6), counts[axis] = choices.size(1, 4);
  const auto make = choices.flag() ? mhla_partition_grid : mhla_partition_by_extent;
  if (axes == 1 || !ok(make(axes, sizes, counts, &p)))
    ok(mhla_partition_line(choices.size(0, 30), choices.size(1, 9), &p));
  return p;
}

// A struct can hold anything.
void spoil(mhla_partition& p, Choices& choices) {
  if (choices.rarely()) p.sizes[choices.number(0, 2)] = choices.size(0, 9);
  if (choices.rarely()) p.extents[choices.number(0, 2)] = choices.size(0, 9);
  if (choices.rarely()) p.blocks = choices.size(0, 9);
  if (choices.rarely()) p.tokens = choices.size(0, 9);
  if (choices.rarely()) p.axes = static_cast<int>(choices.size(0, 3));
}

void try_partition(Choices& choices) {
  const mhla_partition p = partition_of(choices);
  if (p.tokens < 0 || p.tokens > 4096 || p.blocks < 0 || p.blocks > 64) return;
  std::vector<std::int64_t> order(static_cast<std::size_t>(p.tokens) + 1),
      offsets(static_cast<std::size_t>(p.blocks) + 1);
  ok(mhla_partition_block_order(&p, order.data(), offsets.data()));
  std::vector<double> mixing(static_cast<std::size_t>(p.blocks * p.blocks) + 1);
  mhla_mixing_parameters parameters{choices.factor(), choices.factor(), choices.factor()};
  ok(mhla_mixing_init(&p, option(choices, 9), &parameters, mixing.data()));
}

void try_plan(Choices& choices) {
  mhla_problem problem = mhla_default_problem();
  problem.device = option(choices, 1);
  problem.dtype = option(choices, 4);
  problem.partition = partition_of(choices);
  spoil(problem.partition, choices);
  problem.batch = choices.size(0, 2);
  problem.heads = choices.size(1, 3);
  problem.kv_heads = choices.flag() ? problem.heads : choices.size(1, 3);
  problem.key_dim = choices.size(1, 8);
  problem.value_dim = choices.size(1, 8);
  problem.options = options_of(choices);
  problem.mixing_blocks = choices.flag() ? problem.partition.blocks : choices.size(0, 9);
  problem.mixing_per_head = choices.flag();
  problem.separate_denominator = choices.rarely();
  problem.initial_tokens = choices.flag() ? 0 : choices.size(0, 20);
  const std::int64_t offsets[3] = {0, choices.size(0, 9), problem.partition.tokens};
  if (choices.rarely()) problem.cu_seqlens = offsets, problem.cu_seqlens_count = 3;
  problem.mixing_per_row = choices.rarely();
  mhla_plan* plan = nullptr;
  if (ok(mhla_plan_create(&problem, static_cast<int>(choices.size(0, 2)), &plan))) {
    fuzz::expect(plan != nullptr, "a plan that is null");
    fuzz::expect(mhla_plan_algorithm(plan) != MHLA_ALGORITHM_AUTOMATIC, "a plan that has not decided");
    mhla_forward_args nothing{};
    ok(mhla_forward(plan, &nothing));
    mhla_backward_args nothing_back{};
    ok(mhla_backward(plan, &nothing_back));
  }
  mhla_plan_destroy(plan);
}

void try_null() {
  ok(mhla_plan_create(nullptr, 1, nullptr));
  ok(mhla_forward(nullptr, nullptr));
  ok(mhla_backward(nullptr, nullptr));
  ok(mhla_partition_line(4, 2, nullptr));
  ok(mhla_state_create(nullptr, nullptr, nullptr));
  ok(mhla_state_restore(nullptr, 5, nullptr));
  ok(mhla_state_serialize(nullptr, nullptr, nullptr));
  ok(mhla_state_fork(nullptr, nullptr));
  mhla_plan_destroy(nullptr);
  mhla_state_destroy(nullptr);
}

void try_restore(Choices& choices) {
  std::vector<std::uint8_t> bytes;
  while (choices.left()) bytes.push_back(choices.byte());
  mhla_state* state = nullptr;
  ok(mhla_state_restore(bytes.data(), bytes.size(), &state));
  mhla_state_destroy(state);
}

}  // namespace

fuzz::Inputs fuzz::seeds() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(fuzz::bytes_of(data, size));
  switch (choices.number(0, 8)) {
    case 0:
      try_null();
      break;
    case 1:
      try_restore(choices);
      break;
    case 2:
    case 3:
      try_partition(choices);
      break;
    default:
      try_plan(choices);
  }
  return 0;
}
