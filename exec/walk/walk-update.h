/* State that is updated, part by part of each parameter, and saved; moments in eight bits. */
#pragma once
#include "exec/walk/walk-private.h"
G_BEGIN_DECLS

/* exec/walk/walk-state.c */
gboolean exec_walk_save (ExecWalk *self, gint64 steps_done, gboolean behind, GError **error);

/* All ranks: names the checkpoint that is being written, if one is. */
gboolean exec_walk_finish_saving (ExecWalk *self, GError **error);
GByteArray *exec_walk_main_params (const ExecWalk *self, GError **error);

/* The part of a parameter that lies in a shard: elements of the shard, and the first one of the
 * parameter. FALSE where none does. */
gboolean exec_walk_part_of (const ExecShard *shard, const PlanSlot *slot, guint64 *out_at,
                            guint64 *out_count, guint64 *out_first);
guint8 *exec_walk_state (const ExecWalk *self, const ExecShard *shard, ExecState state,
                         guint64 element);

/* From the source of the run: elements of what this rank has of a parameter, of whose slot in a
 * bucket `first` is one. */
gboolean exec_walk_read_part (const ExecWalk *self, ExecState state, const PlanSlot *slot,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);

/* exec/walk/walk-update.c */
/* Floats of all shards' moments: of each part of a parameter the two scales, and room behind each
 * for the device. */
guint exec_walk_n_moment_scales (const ExecWalk *self);

/* Moments begin as zeros, of any scale. The `at`th and later ones are this shard's. */
gboolean exec_walk_take_moment_scales (const ExecWalk *self, ExecShard *shard, guint *io_at,
                                       GError **error);

/* One ADAMW or SGD op, for all parts that are in its rank's part of a bucket. */
gboolean exec_walk_run_update (const ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);

/* From the source of the run. */
gboolean exec_walk_fill_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state,
                                GError **error);

/* Those of a slot's part, where the host can read them; the caller frees. */
float *exec_walk_widen_scaled (const ExecWalk *self, const ExecShard *shard, ExecState state,
                               guint slot, guint64 at, guint64 count, GError **error);

G_END_DECLS
