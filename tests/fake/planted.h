/* Kernels with a mistake each, to see that the fake device notices. All run one block of 64
 * threads and return the launch's error code. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* out[i] = 63 - i through shared memory: with its barrier, without it, or with half of the block
 * going round it. */
int planted_reverse (float *out);
int planted_no_barrier (float *out);
int planted_half_barrier (float *out);

/* Two barriers, half of the block at each. */
int planted_two_barriers (float *out);

/* A shuffle that asks for all lanes and gets half of them. */
int planted_half_shuffle (float *out);

/* out[i] = i + 1 by a shuffle down, the last lane of a warp its own i. */
int planted_shuffle_down (float *out);

G_END_DECLS
