/* Kernels with a mistake each, to test that the fake device notices it. All run one block of 64
 * threads on a stream (or NULL) in device memory and return the launch's error code. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* out[i] = 63 - i through shared memory: with its barrier, without it, or with half of the block
 * going round it. */
int planted_reverse (float *out, void *stream);
int planted_no_barrier (float *out, void *stream);
int planted_half_barrier (float *out, void *stream);

/* Two barriers, half of the block at each. */
int planted_two_barriers (float *out, void *stream);

/* A shuffle that asks for all lanes and gets half of them. */
int planted_half_shuffle (float *out, void *stream);

/* out[i] = i + 1 by a shuffle down; the last lane of a warp gets its own i. */
int planted_shuffle_down (float *out, void *stream);

/* out[i] = in[i] for i < count; each thread copies a struct of 16 bytes, or 24 by memcpy. */
int planted_copy (float *out, const float *in, guint count, void *stream);
int planted_copy_quads (float *out, const float *in, guint count, void *stream);
int planted_copy_long (float *out, const float *in, guint count, void *stream);

/* Every thread adds its numbers of `in` to *sum atomically. */
int planted_sum (float *sum, const float *in, guint count, void *stream);

/* Races whose results are right in any order of whole threads: two threads, or two blocks of them,
 * write the same number to the same place; one reads what others add to atomically. */
int planted_one_slot (float *out, void *stream);
int planted_both_blocks (float *out, void *stream);
int planted_read_beside_atomics (float *out, void *stream);

/* out[i] = i ^ 1 through shared memory, with a __syncwarp or with a shuffle in its place. */
int planted_within_warps (float *out, gboolean syncs, void *stream);

/* planted_reverse twice, with a barrier between the two or without. */
int planted_two_rounds (float *out, gboolean waits, void *stream);

/* out[i] = 63 - i through `bytes` of shared memory that the launch asks for. */
int planted_dynamic (float *out, gsize bytes, void *stream);

G_END_DECLS
