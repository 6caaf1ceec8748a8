/* State that is updated and saved parameter by parameter; moments in eight bits. */
#pragma once
#include "exec/walk/walk-private.h"
G_BEGIN_DECLS

/* exec/walk/walk-state.c */
gboolean exec_walk_save (ExecWalk *self, gint64 steps_done, gboolean behind, GError **error);

/* Publishes the checkpoint that is being written, if there is one. All ranks call it. */
gboolean exec_walk_finish_saving (ExecWalk *self, GError **error);
GByteArray *exec_walk_main_params (const ExecWalk *self, GError **error);

/* The part of a slot's parameter that lies in a shard: its first element in the shard, how many
 * there are, and the first one's index in the slot. FALSE where the shard holds none. */
gboolean exec_walk_part_of (const ExecShard *shard, const PlanSlot *slot, guint64 *out_at,
                            guint64 *out_count, guint64 *out_first);

/* Where an element of a shard's state lies: weights on the device, moments where the optimizer
 * keeps them. The second says whether that is on the host, and cuts the `io_count` elements from
 * this one on to those that lie in a row. */
guint8 *exec_walk_state (const ExecWalk *self, const ExecShard *shard, ExecState state,
                         guint64 element);
gboolean exec_walk_is_on_host (const ExecShard *shard, ExecState state, guint64 element,
                               guint64 *io_count);

/* The shard that an optimizer's op updates, and in `out_first` the first of its elements that the
 * op means; NULL: none. */
ExecShard *exec_walk_updated_shard (const ExecWalk *self, const PlanCursor *cursor,
                                    const PlanOp *op, guint64 *out_first);

/* Reads initial values of a slot's parameter, `count` from element `first` of the slot on. The slot
 * may hold a slice of the whole parameter. */
gboolean exec_walk_read_part (const ExecWalk *self, ExecState state, const PlanSlot *slot,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);

/* exec/walk/walk-params.c: number of floats of buffers in formats with one scale, in which experts
 * have matrices of their own: for each buffer and expert. */
guint exec_walk_n_expert_scales (const ExecWalk *self);
void exec_walk_place_scales (ExecWalk *self); /* those of parameters, of moments, of experts */

/* exec/walk/walk-update.c */
/* Number of floats that all shards' moment scales take: for each part of a parameter two scales,
 * and behind each of them a float for the device to work with. */
guint exec_walk_n_moment_scales (const ExecWalk *self);

/* Gives a shard its scales, all 1, from the `io_at`th on, and counts that up. The value does not
 * matter: moments begin as zeros. */
gboolean exec_walk_take_moment_scales (const ExecWalk *self, ExecShard *shard, guint *io_at,
                                       GError **error);

/* Runs one op of the optimizer on all parts of parameters in its shard. */
gboolean exec_walk_run_update (const ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);

/* Fills one state of a shard, in eight bits with scales, with initial values. */
gboolean exec_walk_fill_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state,
                                GError **error);

/* The elements of a slot's part as fp32 in the host's memory; the caller frees. */
float *exec_walk_widen_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state,
                               guint slot, guint64 at, guint64 count, GError **error);

G_END_DECLS
