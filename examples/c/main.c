/* A causal layer fed token by token, checked against the same tokens fed at once. */
#include <math.h>
#include <mhla/mhla.h>
#include <stdio.h>
#include <stdlib.h>

enum { kTokens = 200, kHeads = 2, kDim = 16, kBlock = 64, kBlocks = 4, kRow = kHeads * kDim };

static void check(mhla_status status) {
  if (status == MHLA_OK) return;
  fprintf(stderr, "mhla: %s\n", mhla_last_error());
  exit(1);
}

static float pseudo_random(void) {
  static uint32_t seed = 1;
  seed = seed * 1664525U + 1013904223U;
  return (float)(seed >> 8) / (float)(1 << 23) - 1.0F;
}

static mhla_const_tensor at(const float* x, int token) {
  return mhla_const_contiguous(x + token * kRow, kTokens, kHeads, kDim);
}

int main(void) {
  static float q[kTokens * kRow], k[kTokens * kRow], v[kTokens * kRow], at_once[kTokens * kRow],
      streamed[kTokens * kRow];
  for (int n = 0; n < kTokens * kRow; ++n) {
    q[n] = pseudo_random();
    k[n] = pseudo_random();
    v[n] = pseudo_random();
  }
  mhla_partition partition;
  double initial[kBlocks * kBlocks];
  float mixing[kBlocks * kBlocks];
  check(mhla_partition_line(kTokens, kBlock, &partition));
  check(mhla_mixing_init(&partition, MHLA_MIXING_RUNNING_MEAN, NULL, initial));
  for (int n = 0; n < kBlocks * kBlocks; ++n) mixing[n] = (float)initial[n];

  mhla_state_config config = mhla_default_state_config();
  config.heads = config.kv_heads = kHeads;
  config.key_dim = config.value_dim = kDim;
  config.block_size = kBlock;
  config.mixing_blocks = kBlocks;
  mhla_state *whole = NULL, *stream = NULL;
  check(mhla_state_create(&config, mixing, &whole));
  check(mhla_state_fork(whole, &stream));

  check(mhla_state_prefill(whole, kTokens, at(q, 0), at(k, 0), at(v, 0),
                           mhla_contiguous(at_once, kTokens, kHeads, kDim), NULL));
  for (int t = 0; t < kTokens; ++t)
    check(mhla_state_step(stream, at(q, t), at(k, t), at(v, t),
                          mhla_contiguous(streamed + t * kRow, kTokens, kHeads, kDim), NULL));

  double error = 0, size = 0;
  for (int n = 0; n < kTokens * kRow; ++n) {
    error += pow(streamed[n] - at_once[n], 2);
    size += pow(at_once[n], 2);
  }
  const double relative = sqrt(error / size);
  printf("mhla %s: %d tokens one by one and at once differ by %.1e\n", mhla_version(), kTokens, relative);
  mhla_state_destroy(stream);
  mhla_state_destroy(whole);
  return relative < 1e-5 ? 0 : 1;
}
