/* exec_evaluate: the same training run as exec_run_threads, computed in one process from what the
 * plan declares (which sums in which order, which roundings), with no schedule, shard, bucket queue
 * or collective. The reference that every backend must equal, bit for bit. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* `ranks` is the number of ranks of all kinds of parallelism together. out_result gets losses,
 * norms and the whole main weights as fp32 (embedding, head, layers, without padding), of one
 * tensor-parallel rank after the other. */
gboolean exec_evaluate (const ExecJob *job, guint ranks, ExecResult *out_result, GError **error);

G_END_DECLS
